# SPDX-License-Identifier: Apache-2.0
"""The named behaviours, by the stage of a unit that is wrong."""
