# SPDX-License-Identifier: Apache-2.0
"""The command line. Every wrong call ends in one clear line and a non-zero exit.

`app` has the group and what commands share; every other module is the commands of one subject.
"""

from __future__ import annotations

import io
import sys

import click

from . import (
    accumulate,
    campaign,
    check,
    completion,
    convert,
    coverage,
    decode,
    diff,
    draw,
    evaluate,
    explore,
    export,
    inspect,
    journeys,
    layers,
    quantize,
    roofline,
    shrink,
    vectors,
    widths,
)
from .app import cli
from .bytes_bar import error_line

__all__ = [
    "accumulate",
    "campaign",
    "check",
    "cli",
    "completion",
    "convert",
    "coverage",
    "decode",
    "diff",
    "draw",
    "evaluate",
    "explore",
    "export",
    "inspect",
    "journeys",
    "layers",
    "main",
    "quantize",
    "roofline",
    "shrink",
    "vectors",
    "widths",
]


def main() -> None:
    """Run the command line; what the user can mend is one line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a terminal without Unicode cannot show is escaped; it is no reason to stop half-way.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(prog_name="mxfp", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("mxfp: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except (ValueError, TypeError, ImportError, FloatingPointError, OSError, MemoryError) as error:
        click.echo(error_line(error), err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
