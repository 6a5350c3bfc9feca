# SPDX-License-Identifier: Apache-2.0
"""The cluster and its load at one moment, as both programs see it."""

from __future__ import annotations

from typing import NamedTuple

from common.cache.snapshot import Snapshot
from common.load.view import LoadView
from common.usage import MEASURED, SourceChoice


class Belief(NamedTuple):
    """A moment of the cluster and what is believed of its load."""

    snapshot: Snapshot
    load: LoadView
    source: SourceChoice = MEASURED
    trouble: str = ""
    """Why usage was not read the last time; empty if it was."""
