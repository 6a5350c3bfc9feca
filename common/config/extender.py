"""The configuration of the extender."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from common.config.choices import Overloaded
from common.config.shared import Configuration
from common.config.values import OwnNamespace, Points


class ExtenderConfiguration(Configuration):
    """Everything the extender can be told."""

    kind: Literal["ExtenderConfiguration"] = Field(
        default="ExtenderConfiguration", description="Required in a file."
    )
    overloaded: Overloaded = Field(
        default=Overloaded.SCORE,
        description="Overloaded nodes get the lowest score, or with `filter` are dropped while "
        "another candidate is not overloaded.",
    )
    lease_namespace: OwnNamespace = Field(
        default="",
        description="Where the Lease is by which the rebalancer knows what this extender knows; "
        "empty is the namespace the program runs in, outside a cluster `evenkeel`.",
    )
    new_pod_floor: Points = Field(
        default=2.5,
        description="A new pod that only its own requests speak for counts for at least this "
        "share of its node until it is measured, so that a burst is spread; 0 believes requests.",
    )
