# SPDX-License-Identifier: Apache-2.0
"""The scheduler extender: kube-scheduler calls it to filter and score nodes."""
