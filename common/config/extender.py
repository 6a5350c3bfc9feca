# SPDX-License-Identifier: Apache-2.0
"""The configuration of the extender."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from common.config.choices import Overloaded
from common.config.shared import Configuration
from common.config.values import OwnNamespace, Points, ShortlistSize


class ExtenderConfiguration(Configuration):
    """The configuration of the extender."""

    kind: Literal["ExtenderConfiguration"] = Field(
        default="ExtenderConfiguration", description="Required in a file."
    )
    overloaded: Overloaded = Field(
        default=Overloaded.SCORE,
        description="Overloaded nodes get the lowest score, or with `filter` are refused while "
        "another candidate is not overloaded.",
    )
    shortlist: ShortlistSize = Field(
        default="auto",
        description="How many nodes filter leaves to a pod that has not been tried before, those "
        "with the least predicted load: `auto` leaves 50, or 5 % of the nodes in the request if "
        "that is more. Pods that would lose by it get all nodes, and with `off` all pods do.",
    )
    lease_namespace: OwnNamespace = Field(
        default="",
        description="Namespace of the Lease that the rebalancer reads; empty means the "
        "namespace the program runs in, or `evenkeel` outside of a cluster.",
    )
    new_pod_floor: Points = Field(
        default=2.5,
        description="A new pod without measured siblings counts for at least this share of its "
        "node until it is measured, so that a burst is spread; 0 uses its requests.",
    )
