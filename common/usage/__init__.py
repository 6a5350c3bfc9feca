# SPDX-License-Identifier: Apache-2.0
"""Usage: what nodes and pods were measured to use, and the sources that measure it.

Only the plain values are exported here. The sources do I/O and are imported by name, so
that the pure core can import this package without pulling a client in.
"""

from common.usage.source import (
    MEASURED,
    NOTHING_MEASURED,
    Sample,
    SourceChoice,
    Usage,
    UsageError,
    UsageSource,
)

__all__ = [
    "MEASURED",
    "NOTHING_MEASURED",
    "Sample",
    "SourceChoice",
    "Usage",
    "UsageError",
    "UsageSource",
]
