# SPDX-License-Identifier: Apache-2.0
"""Soak test of the extender: everything busy for a while, and nothing grows."""
