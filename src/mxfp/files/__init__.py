# SPDX-License-Identifier: Apache-2.0
"""Model files: their headers and tensors, read strictly and written whole."""
