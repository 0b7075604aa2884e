# SPDX-License-Identifier: Apache-2.0
"""`python -m mxfp` is `mxfp`."""

from .cli import main

main()
