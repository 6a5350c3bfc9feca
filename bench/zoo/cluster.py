# SPDX-License-Identifier: Apache-2.0
"""A cluster of the zoo: API objects, what every pod uses, and the settings of the rebalancer.

Everything is a plain manifest, so that the program, the judge and a person read the same.
Pods run and are old, workloads are complete, nodes are Ready: what differs from that is the
family's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from simulator import build

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

GIB: Final = 1 << 30
SINCE: Final = "2026-01-05T08:00:00Z"
READY: Final = [
    {"type": kind, "status": "True", "lastTransitionTime": SINCE}
    for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
]
NAMESPACE: Final = "default"
_REVISION: Final = "r1"
_DRIVER: Final = "disk.example.com"


@dataclass(frozen=True, slots=True)
class Use:
    """What a pod was measured to use."""

    cpu_milli: int
    mem_bytes: int


SMALL: Final = Use(50, GIB // 16)
"""What pods request where requests do not matter."""


@dataclass(slots=True)
class ZooCluster:
    """Objects by plural name, usage by pod name, and the configuration."""

    settings: Json
    objects: dict[str, list[Json]] = field(default_factory=dict)
    use: dict[str, Use] = field(default_factory=dict)
    overhead: dict[str, Use] = field(default_factory=dict)

    def node(self, name: str, *, cpu: int = 8, gib: int = 32, **more: Any) -> str:
        """Add a Ready node of so many cores and GiB."""
        overhead = more.pop("overhead", Use(0, 0))
        made = build.node(name, cpu=str(cpu), memory=f"{gib}Gi", **more)
        made["status"]["conditions"] = [
            {"type": "Ready", "status": "True", "lastTransitionTime": SINCE}
        ]
        self._add("nodes", made)
        self.overhead[name] = overhead
        return name

    def workload(
        self,
        name: str,
        on: Sequence[str],
        uses: Sequence[Use],
        *,
        requests: Use = SMALL,
        stateful: bool = False,
        **template: Any,
    ) -> list[str]:
        """Add a ReplicaSet or StatefulSet with one running pod on each of these nodes."""
        make = build.stateful_set if stateful else build.replica_set
        sized: Json = {"cpu": f"{requests.cpu_milli}m", "memory": f"{requests.mem_bytes >> 10}Ki"}
        owner = make(name, len(on), **sized, **template)
        self._complete(owner, stateful=stateful)
        self._add("statefulsets" if stateful else "replicasets", owner)
        pods = []
        for number, (node, use) in enumerate(zip(on, uses, strict=True)):
            pods.append(self._pod(owner, f"{name}-{number}", node, use))
        return pods

    def daemon_set(self, name: str, uses: Mapping[str, Use]) -> None:
        """Add a DaemonSet with a running pod on each of these nodes."""
        asked: Json = {"cpu": f"{SMALL.cpu_milli}m", "memory": f"{SMALL.mem_bytes >> 10}Ki"}
        owner = build.replica_set(name, len(uses), **asked)
        owner["kind"] = "DaemonSet"
        del owner["spec"]["replicas"]
        self._add("daemonsets", owner)
        for number, (node, use) in enumerate(uses.items()):
            self._pod(owner, f"{name}-{number}", node, use)

    def pdb(self, name: str, app: str, *, allowed: int, **limits: Any) -> None:
        """Add a PodDisruptionBudget whose status the disruption controller has computed."""
        made = build.pdb(name, match={"app": app}, **limits)
        matching = sum(p["metadata"]["labels"].get("app") == app for p in self.objects["pods"])
        made["metadata"]["generation"] = 1
        made["status"] = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": matching,
            "desiredHealthy": max(0, matching - allowed),
            "expectedPods": matching,
        }
        self._add("poddisruptionbudgets", made)

    def zonal_claim(self, pod: str, zone: str) -> None:
        """Give a pod a bound claim whose volume only nodes of a zone reach."""
        claim, volume = f"data-{pod}", f"pv-{pod}"
        term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
        self._add(
            "persistentvolumes",
            {
                "metadata": {"name": volume},
                "spec": {
                    "capacity": {"storage": "10Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "claimRef": {"namespace": NAMESPACE, "name": claim},
                    "nodeAffinity": {
                        "required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
                    },
                    "csi": {"driver": _DRIVER, "volumeHandle": volume},
                },
                "status": {"phase": "Bound"},
            },
        )
        self._add(
            "persistentvolumeclaims",
            {
                "metadata": {
                    "name": claim,
                    "namespace": NAMESPACE,
                    # Without it a claim counts as unbound (isPVCFullyBound in
                    # pkg/scheduler/framework/plugins/volumebinding/binder.go).
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                },
                "spec": {"volumeName": volume, "accessModes": ["ReadWriteOnce"]},
                "status": {"phase": "Bound"},
            },
        )
        found = next(p for p in self.objects["pods"] if p["metadata"]["name"] == pod)
        volume_of_pod = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        found["spec"].setdefault("volumes", []).append(volume_of_pod)

    def attaches(self, node: str, volumes: int) -> None:
        """Let a node attach only so many volumes of the driver of zonal claims."""
        driver = {"name": _DRIVER, "nodeID": node, "allocatable": {"count": volumes}}
        self._add("csinodes", {"metadata": {"name": node}, "spec": {"drivers": [driver]}})

    def used(self, node: str) -> Use:
        """Return what a node uses: its pods and what it needs for itself."""
        mine = [
            self.use[p["metadata"]["name"]]
            for p in self.objects.get("pods", ())
            if p["spec"].get("nodeName") == node
        ]
        own = self.overhead[node]
        return Use(
            own.cpu_milli + sum(u.cpu_milli for u in mine),
            own.mem_bytes + sum(u.mem_bytes for u in mine),
        )

    def metrics(self) -> tuple[list[Json], list[Json]]:
        """Return NodeMetrics and PodMetrics as metrics-server serves them now."""
        stamp = {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "window": "15s",
        }
        nodes = [
            {"metadata": {"name": name}, **stamp, "usage": _quantities(self.used(name))}
            for name in self.overhead
        ]
        pods = []
        for pod in self.objects.get("pods", ()):
            name = pod["metadata"]["name"]
            containers = [{"name": "app", "usage": _quantities(self.use[name])}]
            place = {"name": name, "namespace": NAMESPACE}
            pods.append({"metadata": place, **stamp, "containers": containers})
        return nodes, pods

    def _pod(self, owner: Json, name: str, node: str, use: Use) -> str:
        template = owner["spec"]["template"]
        labels = dict(template["metadata"]["labels"])
        if owner["kind"] == "StatefulSet":
            labels["controller-revision-hash"] = _REVISION
        reference = {
            "apiVersion": "apps/v1",
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": labels,
                "ownerReferences": [reference],
            },
            "spec": {
                **template["spec"],
                "nodeName": node,
                "schedulerName": "default-scheduler",
                "containers": template["spec"]["containers"],
            },
            "status": {"phase": "Running", "conditions": READY, "startTime": SINCE},
        }
        self._add("pods", made)
        self.use[name] = use
        return name

    def _complete(self, owner: Json, *, stateful: bool) -> None:
        replicas = owner["spec"]["replicas"]
        counts = ["replicas", "readyReplicas", "availableReplicas"]
        counts += ["currentReplicas", "updatedReplicas"] if stateful else ["fullyLabeledReplicas"]
        owner["status"] = {**dict.fromkeys(counts, replicas), "observedGeneration": 1}
        if stateful:
            owner["status"] |= {"currentRevision": _REVISION, "updateRevision": _REVISION}
        owner["metadata"]["generation"] = 1

    def _add(self, plural: str, made: Json) -> None:
        listed = self.objects.setdefault(plural, [])
        metadata = made["metadata"]
        metadata.setdefault("uid", f"{plural}-{metadata['name']}")
        metadata.setdefault("creationTimestamp", SINCE)
        metadata.setdefault("resourceVersion", "7")
        listed.append(made)


def _quantities(use: Use) -> Mapping[str, str]:
    return {"cpu": f"{use.cpu_milli}m", "memory": str(use.mem_bytes)}
