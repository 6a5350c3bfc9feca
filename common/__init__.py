# SPDX-License-Identifier: Apache-2.0
"""What both programs share: reading a cluster correctly, fast and for ever."""

__version__ = "0.1.0"
