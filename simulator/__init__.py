# SPDX-License-Identifier: Apache-2.0
"""A whole Kubernetes cluster in one process, for tests and demos."""
