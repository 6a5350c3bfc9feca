# SPDX-License-Identifier: Apache-2.0
"""Evenkeel and descheduler, one after the other, on the same real cluster."""
