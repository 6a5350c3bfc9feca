# SPDX-License-Identifier: Apache-2.0
"""Nodes: kubelets that run pods, the usage of the pods, and the metrics pipeline."""
