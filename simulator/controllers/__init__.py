# SPDX-License-Identifier: Apache-2.0
"""The controllers of kube-controller-manager, one module each."""
