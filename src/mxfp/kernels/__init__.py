# SPDX-License-Identifier: Apache-2.0
"""The fast wing: numba twins of the rooms, under the same names and with the same bits.

Nothing here is imported before the first call that asks for `engine="numba"`.
"""
