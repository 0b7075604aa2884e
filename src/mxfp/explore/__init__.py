# SPDX-License-Identifier: Apache-2.0
"""Interactive lessons: marimo notebooks that show every stage of a dot product (extra `explore`)."""
