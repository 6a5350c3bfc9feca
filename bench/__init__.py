# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: each prints its figures with a limit or a comparison, measured in one run."""
