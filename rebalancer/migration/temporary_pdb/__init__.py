# SPDX-License-Identifier: Apache-2.0
"""Temporary PodDisruptionBudgets for workloads that have none while their pods move."""
