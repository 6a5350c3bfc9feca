# SPDX-License-Identifier: Apache-2.0
"""Plays the loop in memory, on a snapshot of a cluster or on a scenario of the simulator."""
