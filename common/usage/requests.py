# SPDX-License-Identifier: Apache-2.0
"""No measurements at all: load is what pods ask for.

The figures come from the cluster's records, so there is nothing to sample. The load tracker
is told so when it is made, and then every node's load is the sum of its pods' requests.
"""

from __future__ import annotations

from typing import Final

from common.config import SourceKind
from common.usage.source import NOTHING_MEASURED, Sample


class RequestsSource:
    """Stands in where nothing measures."""

    name: Final[str] = SourceKind.REQUESTS

    async def sample(self) -> Sample:
        return NOTHING_MEASURED
