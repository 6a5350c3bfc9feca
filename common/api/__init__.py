# SPDX-License-Identifier: Apache-2.0
"""Kubernetes API objects on the wire, and the names that users and other programs rely on."""
