# SPDX-License-Identifier: Apache-2.0
"""Groups of pods that kube-scheduler places together, and what they need to run.

A group with the policy `basic` is a name for some pods. One with the policy `gang` starts when
`minCount` of its pods can be placed, and its work needs as many of them. `disruptionMode:
PodGroup` says that its pods are only ever disrupted all at once. A topology constraint keeps all
pods of the group in one domain. See k8s.io/api/scheduling/v1alpha2/types.go.
"""

from __future__ import annotations

from typing import Final

import msgspec

from common.api.objects import PodGroup
from common.cluster.interning import Interner

_ONE_BY_ONE: Final = "Pod"


class PodGroupRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a group needs."""

    namespace: str
    name: str
    minimum: int
    """How many of its pods must run; 0 for a group without a gang policy."""
    whole: bool
    """Its pods are disrupted all at once or not at all."""
    topology: str
    """The label of the domain that holds all of its pods; empty if there is none."""


def pod_group_record(wire: PodGroup, shared: Interner) -> PodGroupRecord:
    spec, meta = wire.spec, wire.metadata
    gang, limits = spec.scheduling_policy.gang, spec.scheduling_constraints
    topology = limits.topology if limits is not None else []
    return PodGroupRecord(
        namespace=shared.value(meta.namespace),
        name=meta.name,
        minimum=max(gang.min_count, 1) if gang is not None else 0,
        # A mode of a later version is no permission to take single pods.
        whole=(spec.disruption_mode or _ONE_BY_ONE) != _ONE_BY_ONE,
        topology=", ".join(each.key or "domain" for each in topology),
    )
