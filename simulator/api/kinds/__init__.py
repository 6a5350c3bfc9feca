# SPDX-License-Identifier: Apache-2.0
"""Strategies of the built-in kinds, one module for each family."""
