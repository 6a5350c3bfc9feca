# SPDX-License-Identifier: Apache-2.0
"""The watched cluster in memory: one writer, copy-on-write tables, immutable snapshots."""
