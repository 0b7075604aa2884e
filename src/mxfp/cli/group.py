# SPDX-License-Identifier: Apache-2.0
"""The group of commands: sorted by who needs them, and a first page for who calls it without any."""

from __future__ import annotations

from typing import Final

import click

SECTIONS: Final = {
    "See and learn": ("show", "dot", "formats", "draw", "explore"),
    "Your data and models": ("report", "inspect", "quantize", "convert", "diff", "evaluate"),
    "Widths and accumulators": ("widths", "accumulate", "campaign"),
    "Verify hardware": ("vectors", "check", "shrink", "coverage", "export-c"),
    "Speed": ("roofline", "decode"),
    "This command line": ("completion",),
}
"""Every command, under the heading of its help."""

FIRST_PAGE: Final = """\
mxfp: Microscaling (MX) arithmetic, bit for bit. Try:

  mxfp show 0.1 -2.3 7 2.5        four numbers become four bits each, and one scale
  mxfp dot                        a dot product, every stage of it
  mxfp draw block                 a picture of a block, before and after
  mxfp report                     what MXFP4 does to a real layer: accuracy, bytes, speed
  mxfp widths                     how many bits an adder tree needs, proved
  mxfp vectors dot --out vectors  what to verify a MAC unit with
  mxfp decode --help              how many tokens a second a device can reach

All commands: mxfp --help. What one does, with examples: mxfp COMMAND --help.
"""


class Commands(click.Group):
    """Commands under headings."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of SECTIONS; those that it lacks come last."""
        known = [name for names in SECTIONS.values() for name in names if name in self.commands]
        return known + sorted(set(self.commands) - set(known))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A heading, and a line for each command."""
        for heading, names in SECTIONS.items():
            rows = [
                (name, self.commands[name].get_short_help_str(120)) for name in names if name in self.commands
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
