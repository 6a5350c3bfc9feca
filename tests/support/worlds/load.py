# SPDX-License-Identifier: Apache-2.0
"""A small cluster for the load model: wire objects in, samples in, beliefs out.

CPU is in milli-cores and memory in MiB, so that tables stay readable. Time stands still
until `pass_time` is called; every pod was scheduled an hour ago by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodUid
from common.config import LoadSettings
from common.load import Load, LoadTracker, LoadView, NodeLoad, PodLoad
from common.usage.source import Sample, Usage
from simulator import build
from tests.support.worlds.wire import uid_of, wire_node, wire_pod

MIB = 1024.0 * 1024.0
START_S = 1_800_000_000.0
HOUR_S = 3600.0

Figures = Mapping[str, tuple[float, float]]
"""Name → (milli-cores, MiB)."""


def usage(cpu: float, mib: float, end_s: float, window_s: float = 60.0) -> Usage:
    """Return a measurement."""
    return Usage(cpu, mib * MIB, end_s, window_s)


def _stamp(moment_s: float) -> str:
    return datetime.fromtimestamp(int(moment_s), UTC).isoformat()


def running_since(moment_s: float) -> dict[str, Any]:
    """Return the state of a container that began then."""
    return {"running": {"startedAt": _stamp(moment_s)}}


def waiting(reason: str) -> dict[str, Any]:
    """Return the state of a container that does not run."""
    return {"waiting": {"reason": reason}}


class LoadWorld:
    """One cluster, one load tracker and one clock."""

    def __init__(
        self, settings: LoadSettings | None = None, *, from_requests: bool = False
    ) -> None:
        self.state = ClusterState()
        self.tracker = LoadTracker(settings, from_requests=from_requests)
        self.now_s = START_S
        self._pods: dict[str, Any] = {}

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    def node(
        self,
        name: str,
        *,
        cpu: str = "8",
        memory: str = "32Gi",
        uid: str = "",
        created_s: float | None = None,
    ) -> None:
        wire = wire_node(build.node(name, cpu=cpu, memory=memory))
        wire.metadata.uid = uid or uid_of(name)
        if created_s is not None:
            wire.metadata.creation_timestamp = datetime.fromtimestamp(created_s, UTC)
        self.state.nodes.upsert(wire)

    def pod(
        self,
        name: str,
        node: str | None = "n1",
        *,
        scheduled_s: float | None = None,
        uid: str = "",
        owner: str | None = None,
        owner_kind: str = "ReplicaSet",
        requests: tuple[str | None, str | None] = (None, None),
        limits: tuple[str | None, str | None] = (None, None),
        phase: str = "Running",
        unscheduled: bool = False,
        deleted_s: float | None = None,
        state: Mapping[str, Any] | None = None,
        restarts: int = 0,
    ) -> PodUid:
        """Add a pod, or change it; `unscheduled` leaves out everything the kubelet would say.

        `state` is that of its container; `deleted_s` its deletionTimestamp.
        """
        container = build.container(
            cpu=requests[0], memory=requests[1], cpu_limit=limits[0], memory_limit=limits[1]
        )
        stamp = self.now_s - HOUR_S if scheduled_s is None else scheduled_s
        metadata: dict[str, Any] = {"uid": uid or uid_of(f"pod/{name}")}
        if owner is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "apps/v1",
                    "kind": owner_kind,
                    "name": owner,
                    "uid": uid_of(owner),
                    "controller": True,
                }
            ]
        if deleted_s is not None:
            metadata["deletionTimestamp"] = _stamp(deleted_s)
        status: dict[str, Any] = {"conditions": []} if unscheduled else {}
        if state is not None:
            told = {"name": container["name"], "state": state, "restartCount": restarts}
            status["containerStatuses"] = [told]
        wire = wire_pod(
            build.pod(name, node=node, spec={"containers": [container]}),
            phase=phase,
            scheduled=_stamp(stamp),
            status=status or None,
            **metadata,
        )
        self.state.pods.upsert(wire)
        self._pods[name] = wire
        return PodUid(wire.metadata.uid)

    def leave(self, name: str) -> None:
        self.state.pods.delete(self._pods.pop(name))

    def measure(
        self,
        nodes: Figures,
        pods: Figures | None = None,
        *,
        end_s: float | None = None,
        window_s: float = 60.0,
    ) -> None:
        """Let the tracker observe a sample whose windows all end together, by default now."""
        end = self.now_s if end_s is None else end_s
        self.observe(
            {name: usage(*figures, end, window_s) for name, figures in nodes.items()},
            {name: usage(*figures, end, window_s) for name, figures in (pods or {}).items()},
        )

    def observe(self, nodes: Mapping[str, Usage], pods: Mapping[str, Usage]) -> None:
        """Let the tracker observe measurements as they are; pods are named without namespace."""
        sample = Sample(
            nodes={NodeName(name): found for name, found in nodes.items()},
            pods={f"default/{name}": found for name, found in pods.items()},
        )
        self.tracker.observe(sample, self.state.snapshot(), self.now_s)

    def view(self, predecessors: Mapping[PodUid, Load] | None = None) -> LoadView:
        return self.tracker.view(self.state.snapshot(), self.now_s, predecessors or {})

    def load(self, node: str = "n1") -> NodeLoad:
        return self.view().nodes[NodeName(node)]

    def pod_load(self, name: str) -> PodLoad:
        return self.view().pod_load(PodUid(self._pods[name].metadata.uid))
