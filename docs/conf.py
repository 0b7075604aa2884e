# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration."""

project = "mxfp"
author = "The mxfp authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_typehints = "none"
nitpicky = False
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]  # Pygments: import "DPI-C"
