# SPDX-License-Identifier: Apache-2.0
"""The roofline of this machine: measured roofs, and products in several formats under them.

`measure` gives a `Roofline` of plain data; `tables` writes it as tables, Markdown and JSON, `figures`
draws it. `mxfp roofline` is the command.
"""

from .roofline import Roofline

__all__ = ["Roofline"]
