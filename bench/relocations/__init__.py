# SPDX-License-Identifier: Apache-2.0
"""Plans of the strategies about single pods, beside those of an exact judge."""
