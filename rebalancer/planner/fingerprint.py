# SPDX-License-Identifier: Apache-2.0
"""A digest of everything that decides over a plan.

Equal demands have equal fingerprints, on any machine and at any time. The pods of a node are
read once, until they change: there may be hundreds of thousands of them, and most cycles find
the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from common.cluster.records import NodeName, PodRecord, PodUid

if TYPE_CHECKING:
    from rebalancer.planner.problem import Demand

DECIDING: Final = (
    "cpu_threshold",
    "memory_threshold",
    "imbalance_threshold",
    "pools",
    "namespaces",
    "pool_label",
    "priority_policy",
    "min_gain",
    "max_reschedule_pods",
    "max_per_namespace",
    "max_in_flight_per_node",
    "max_inbound_per_node",
    "maintenance_parallelism",
)
"""The keys of the configuration that decide over a plan besides its goals."""

Pods = Mapping[PodUid, PodRecord]


class Fingerprints:
    """Makes fingerprints, and remembers the pods of each node as they were last."""

    def __init__(self) -> None:
        self._pods: dict[NodeName, tuple[Pods, str]] = {}

    def copy(self) -> Fingerprints:
        """Return another one that knows the same pods."""
        found = Fingerprints()
        found._pods = self._pods
        return found

    def of(self, demand: Demand) -> str:
        """Return a digest of nodes, loads and pods, the budgets, goals, rules and limits."""
        digest = blake2b(digest_size=16)
        for part in self._parts(demand):
            digest.update(part.encode())
            digest.update(b"\n")
        return digest.hexdigest()

    def _parts(self, demand: Demand) -> Iterator[str]:
        snapshot, load = demand.cluster.snapshot, demand.cluster.load.nodes
        self._pods = {name: self._at(name, view.pods) for name, view in snapshot.nodes.items()}
        rules = demand.cluster.rules
        for name in sorted(snapshot.nodes):
            found, pool = load[name], rules.of_node(name).name
            yield f"{name} {pool} {found.cpu_milli!r} {found.mem_bytes!r} {self._pods[name][1]}"
            if found.further:
                yield repr(found.further)
        if rules.rules.config.namespaces:
            yield repr([(n, rules.of_namespace(n).words) for n in sorted(snapshot.by_namespace)])
        for key in sorted(snapshot.budgets):
            yield f"{key} {snapshot.budgets[key].disruptions_allowed}"
        yield repr(demand.assessment.goals)
        yield repr([getattr(demand.cluster.config, name) for name in DECIDING])
        yield repr(demand.effort)

    def _at(self, name: NodeName, pods: Pods) -> tuple[Pods, str]:
        known = self._pods.get(name)
        # A mapping is another object as soon as anything in it has changed (see NodeView).
        if known is not None and known[0] is pods:
            return known
        return pods, blake2b(" ".join(sorted(pods)).encode(), digest_size=16).hexdigest()
