# SPDX-License-Identifier: Apache-2.0
"""Strategies beside the plugins of the descheduler, on the same real clusters."""
