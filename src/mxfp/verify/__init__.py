# SPDX-License-Identifier: Apache-2.0
"""The test bench: vectors for a dot-product unit, the check of what it gave, and why it differs."""
