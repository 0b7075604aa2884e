# SPDX-License-Identifier: Apache-2.0
"""What MXFP4 does to a real layer: accuracy against fp16, width, bytes and speed (measure -> data -> draw).

`measure` gives a `Report` of plain data; `mxfp.report.render` writes it as Markdown and JSON,
`mxfp.report.figures` draws it.
"""

from .measure import Report, measure

__all__ = ["Report", "measure"]
