# SPDX-License-Identifier: Apache-2.0
"""Times as the API writes them: RFC 3339 in UTC, seconds since the epoch inside.

`MicroTime` fields (Leases, Events) are refused by the API server unless they carry exactly
six digits of fraction (apimachinery, pkg/apis/meta/v1/micro_time.go), so that is what is
written. Reading accepts every form that RFC 3339 allows and nothing else.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII
)


def micro_time(seconds: float) -> str:
    """Return the epoch time as `2026-11-16T08:53:36.123456Z`."""
    stamp = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return stamp.isoformat(timespec="microseconds") + "Z"


def to_the_second(seconds: float) -> str:
    """Return the epoch time as `2026-11-16T08:53:36Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Return the epoch time of an RFC 3339 stamp; raise ValueError for anything else."""
    if not _RFC3339.fullmatch(text):
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    return datetime.fromisoformat(text).timestamp()
