# SPDX-License-Identifier: Apache-2.0
"""The `evenkeel` command: see what Evenkeel sees, ask it why, and tell it what to do."""
