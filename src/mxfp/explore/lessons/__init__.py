# SPDX-License-Identifier: Apache-2.0
"""The lessons: marimo notebooks, one a file; what they compute is in the modules beside this folder."""
