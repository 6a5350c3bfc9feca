# SPDX-License-Identifier: Apache-2.0
"""The daemon that plans the fewest moves and carries them out."""
