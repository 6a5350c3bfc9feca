# SPDX-License-Identifier: Apache-2.0
"""Ordinary clusters drawn from a seed, each planned by the program and solved by an exact judge."""
