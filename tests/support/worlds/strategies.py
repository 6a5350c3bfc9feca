# SPDX-License-Identifier: Apache-2.0
"""Small clusters for the strategies: nodes with the load that a table gives them.

A node is given by its load in percent (`cpu`, `memory`) beside the builder's arguments; it
is Ready, an hour old and has one movable pod, unless the table says otherwise. Loads are
put in as they are, without samples and smoothing, so that tables show what is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from common.api.contract import Unknown
from common.cache.snapshot import NodeView, Snapshot
from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodRecord
from common.config import LoadSettings, RebalancerConfiguration
from common.fit import FitIndex, World
from common.load import Load, LoadView, NodeLoad
from common.load.estimates import Estimator
from common.load.view import Judgement
from common.usage.source import NodePressure
from rebalancer.goals import AtMost, Dimension, Distribute, Goal, Spread
from rebalancer.strategies import ClusterView, PendingTimes
from simulator import build
from simulator.build import Manifest
from tests.support.repository import UNIT_TESTS
from tests.support.tables import read_table
from tests.support.worlds.wire import wire_node, wire_pod

TABLES = UNIT_TESTS / "rebalancer" / "strategies"
NOW_S = 1_800_000_000.0
HOUR_S = 3600.0
STUCK = "stuck"
"""Label of the pods that may not be moved."""

Table = Mapping[str, Any]  # Any: as YAML nests it


@dataclass(frozen=True)
class Case:
    """One row of a table."""

    table: str
    row: Table

    def __str__(self) -> str:
        return f"{self.table}: {self.row['name']}"


def load_cases(name: str) -> list[Case]:
    """Return the rows of a table."""
    rows = read_table(TABLES / f"{name}.yaml")
    return [Case(name, row) for row in rows]


@dataclass
class Scene:
    """A cluster whose load is set by hand."""

    nodes: dict[str, Manifest]
    pods: Mapping[str, Manifest] = field(default_factory=dict)
    config: Manifest = field(default_factory=dict)
    crowded: bool = True
    """Whether each node has a pod that the table does not name."""

    def __post_init__(self) -> None:
        self.state = ClusterState()
        self.index = FitIndex()
        self.pending_times = PendingTimes()
        self._add_objects()

    def cluster(
        self,
        levels: Mapping[str, Manifest] | None = None,
        *,
        sample_s: float | None = NOW_S,
        now_s: float = NOW_S,
    ) -> ClusterView:
        """Return a look at the cluster, with other levels for some nodes."""
        snapshot = self.state.snapshot()
        load = self._load(snapshot, levels or {}, sample_s, now_s)
        config = RebalancerConfiguration.model_validate(self.config)
        world = World(snapshot, self.index)
        return ClusterView(snapshot, load, config, now_s, world, self.pending_times)

    def add(self, name: str, given: Manifest) -> None:
        """Let a pod come."""
        self.state.pods.upsert(_wire_pod(name, given))

    def drop(self, name: str) -> None:
        """Let a pod go."""
        self.state.pods.delete(_wire_pod(name, {}))

    def remove(self, name: str) -> None:
        """Take a node out of the cluster."""
        self.state.nodes.delete(wire_node(build.node(name)))

    def _add_objects(self) -> None:
        for name, given in self.nodes.items():
            self.state.nodes.upsert(_wire_node(name, given))
            if self.crowded:
                self.state.pods.upsert(_wire_pod(f"{name}-app", {"at": name}))
        for name, given in self.pods.items():
            self.state.pods.upsert(_wire_pod(name, given))

    def _load(
        self,
        snapshot: Snapshot,
        levels: Mapping[str, Manifest],
        sample_s: float | None,
        now_s: float,
    ) -> LoadView:
        judgements = {
            name: Judgement(_node_load(view, self._level(name, levels), sample_s), view, None)
            for name, view in snapshot.nodes.items()
        }
        settings = LoadSettings()
        estimator = Estimator(settings, {}, {})
        return LoadView(
            snapshot, estimator, judgements, now_s=now_s, settings=settings, from_requests=False
        )

    def _level(self, name: NodeName, levels: Mapping[str, Manifest]) -> Manifest:
        return {**self.nodes[name], **levels.get(name, {})}


def scene_of(row: Table) -> Scene:
    """Return the cluster that a row describes."""
    return Scene(
        dict(row["nodes"]),
        row.get("pods", {}),
        row.get("config", {}),
        crowded=row.get("crowded", True),
    )


def evictable(pod: PodRecord) -> bool:
    """Stand for the gates: what is not labelled as stuck may be moved."""
    return STUCK not in pod.labels


def told(goals: Sequence[Goal]) -> list[str]:
    """Return goals as tables write them."""
    return [_told(goal) for goal in goals]


def _word(dimension: Dimension) -> str:
    return dimension.label.lower()


def _told(goal: Goal) -> str:
    if isinstance(goal, AtMost):
        return f"AtMost {goal.node} {'+'.join(map(_word, goal.broken))}"
    if isinstance(goal, Spread):
        pool = f" in {goal.pool}" if goal.pool else ""
        ends = "" if goal.fill_low else " high end only"
        return f"Spread {_word(goal.dimension)} {' '.join(goal.nodes)}{pool}{ends}"
    if isinstance(goal, Distribute):
        return f"Distribute {goal.name} {goal.constraint.topology_key}"
    return f"Empty {goal.node}"


def _wire_node(name: str, given: Manifest) -> Any:
    arguments = {key: given[key] for key in given.keys() - OURS}
    manifest = build.node(name, **arguments)
    if not given.get("ready", True):
        manifest["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    wire = wire_node(manifest)
    wire.metadata.creation_timestamp = _stamp(given.get("age", HOUR_S))
    return wire


OURS = frozenset({"cpu", "memory", "ready", "age", "unknown", "sample", "pressure", "leaving"})


def _wire_pod(name: str, given: Manifest) -> Any:
    arguments = dict(given)
    where = arguments.pop("at", None)
    status: Manifest = {}
    if arguments.pop("unschedulable", False):
        why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status["conditions"] = [why]
    if waits := arguments.pop("waits", None):
        waiting = {"name": "app", "state": {"waiting": {"reason": waits}}}
        status |= {"conditions": [], "containerStatuses": [waiting]}
    if nominated := arguments.pop("nominated", None):
        status["nominatedNodeName"] = nominated
    labels = {
        "app": arguments.pop("app", name),
        **({STUCK: "true"} if arguments.pop("stuck", False) else {}),
    }
    kind = build.stateful_set if arguments.pop("stateful", False) else build.replica_set
    owner = kind(arguments.pop("owner", name), 1)
    return wire_pod(
        build.pod(name, node=where, labels=labels, **arguments), owner=owner, status=status
    )


def _stamp(age_s: float) -> datetime:
    return datetime.fromtimestamp(NOW_S - age_s, UTC)


def _node_load(view: NodeView, level: Manifest, sample_s: float | None) -> NodeLoad:
    cpu, memory = float(level.get("cpu", 50)), float(level.get("memory", 50))
    offered, waits = view.node.allocatable, level.get("pressure", {})
    return NodeLoad(
        name=view.node.name,
        cpu_milli=cpu / 100 * offered.cpu_milli,
        mem_bytes=memory / 100 * offered.mem_bytes,
        offered=Load(float(offered.cpu_milli), float(offered.mem_bytes)),
        why=Unknown(level["unknown"]) if "unknown" in level else None,
        sample_end_s=level.get("sample", sample_s),
        leaving=Load(float(level.get("leaving", 0)) / 100 * offered.cpu_milli, 0.0),
        pressure=NodePressure(waits.get("cpu"), waits.get("memory")),
    )
