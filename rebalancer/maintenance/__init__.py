# SPDX-License-Identifier: Apache-2.0
"""Nodes under maintenance: cordon, progress and completion; the moves themselves are planned."""
