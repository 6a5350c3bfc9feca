# SPDX-License-Identifier: Apache-2.0
"""Clusters of objects with extremes in every field that Evenkeel reads.

Everything here is accepted by the real API server: `tests/e2e/test_fuzz_objects.py` asks it.
What a seed gives never changes, so a failure can be played again by its number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from common.api.contract import (
    DELETION_COST,
    DO_NOT_DISRUPT,
    MAINTENANCE_LABEL,
    MIRROR_POD,
    PREFER_NO_EVICTION,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from simulator.build import Manifest
from tests.support.worlds.wire import uid_of

T = TypeVar("T")

INT32 = 2**31 - 1
INT64 = 2**63 - 1
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
LONG_AGO = "2027-01-15T06:00:00Z"
TIMES = (LONG_AGO, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2027-01-15T07:59:59Z", None)
LONGEST = "v" + "x" * 61 + "z"
HUGE = ("9" * 400, str(2**62), str(INT64), "8Ei", "1E", "1e18", "9223372036854775808k")
TINY = ("1n", "0.0000001", "1e-400", "0", "-0", "1u", "0.5m")
PERCENTS = ("0%", "1%", "50%", "99%", "100%")


@dataclass
class FuzzCluster:
    """The objects of a cluster by table, and what is measured of them."""

    seed: int
    objects: dict[str, list[Manifest]] = field(default_factory=dict)
    node_percent: dict[str, tuple[float, float]] = field(default_factory=dict)
    pod_percent: dict[str, tuple[float, float]] = field(default_factory=dict)

    def of(self, table: str) -> list[Manifest]:
        return self.objects.setdefault(table, [])


class FuzzDice(random.Random):
    """Chooses ordinary values mostly, and extreme ones now and then."""

    def maybe(self, share: float) -> bool:
        return self.random() < share

    def odd(self, ordinary: T, extremes: Sequence[T], share: float = 0.04) -> T:
        return self.choice(extremes) if self.maybe(share) else ordinary

    def some(self, make: Callable[[], T], most: int) -> list[T]:
        return [make() for _ in range(self.randint(0, most))]


def fuzz_cluster(seed: int) -> FuzzCluster:
    """Return the cluster of a seed."""
    return _Maker(seed).cluster()


class _Maker:
    def __init__(self, seed: int) -> None:
        self.dice = FuzzDice(seed)
        self.made = FuzzCluster(seed)
        self.nodes: list[str] = []

    def cluster(self) -> FuzzCluster:
        dice = self.dice
        for name in ("t0", "t1", "kube-system"):
            labels = {"kubernetes.io/metadata.name": name, **self.labels(2)}
            self.put("namespaces", "v1", "Namespace", name, None, labels=labels)
        for number in range(dice.randint(3, 6)):
            self.node(f"n{number}")
        self.small_kinds()
        for number in range(dice.randint(3, 6)):
            self.workload(f"w{number}")
        for number in range(dice.randint(0, 3)):
            self.budget(f"b{number}")
        return self.made

    def put(
        self, table: str, version: str, kind: str, name: str, namespace: str | None, **meta: Any
    ) -> Manifest:
        """Add an object with what the API server adds."""
        whole = {
            "name": name,
            "uid": uid_of(f"{self.made.seed}/{kind}/{namespace}/{name}"),
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": LONG_AGO,
            **({"namespace": namespace} if namespace else {}),
            **{key: value for key, value in meta.items() if value is not None},
        }
        made: Manifest = {"apiVersion": version, "kind": kind, "metadata": whole}
        self.made.of(table).append(made)
        return made

    def labels(self, most: int) -> dict[str, str]:
        dice = self.dice
        found = {f"k{dice.randint(0, 3)}": dice.choice(["a", "b", ""]) for _ in range(most)}
        if dice.maybe(0.03):
            found |= {f"example.com/{'k' * 59}{n}": LONGEST for n in range(4)}
        if dice.maybe(0.01):
            found |= {f"l{n}": "x" for n in range(1000)}
        return found

    def quantity(self, ordinary: str) -> str:
        return self.dice.odd(ordinary, HUGE + TINY)

    def node(self, name: str) -> None:
        dice = self.dice
        labels = {HOST: name, ZONE: dice.choice(["z1", "z2"]), **self.labels(1)}
        if dice.maybe(0.25):
            labels[MAINTENANCE_LABEL] = "true"
        if dice.maybe(0.06):
            labels[CONTROL_PLANE] = ""
        made = self.put("nodes", "v1", "Node", name, None, labels=labels)
        taints = dice.some(self.taint, 2) if dice.maybe(0.12) else []
        made["spec"] = {"taints": taints} if taints else {}
        if dice.maybe(0.06):
            made["spec"]["unschedulable"] = True
        allocatable = {
            "cpu": self.quantity("8"),
            "memory": self.quantity("32Gi"),
            "pods": dice.odd("110", ("0", "1", str(INT64), "9" * 400)),
            "ephemeral-storage": self.quantity("100Gi"),
            "example.com/x": dice.odd("4", ("0", str(2**62), "9" * 400)),
        }
        if dice.maybe(0.03):
            allocatable = dice.choice([{}, {"cpu": "8"}, {"cpu": "1e30", "memory": "1e30"}])
        ready = dice.odd("True", ("False", "Unknown"))
        conditions = [self.condition("Ready", ready)] if dice.maybe(0.97) else []
        images = [{"names": [f"img-{n}"], "sizeBytes": INT64} for n in range(dice.randint(0, 2))]
        made["status"] = {"allocatable": allocatable, "conditions": conditions, "images": images}
        self.nodes.append(name)
        hot = dice.random() * 110 if dice.maybe(0.4) else dice.random() * 40
        self.made.node_percent[name] = (hot, dice.odd(dice.random() * 60, (1e30, 0.0, -5.0)))

    def condition(self, kind: str, status: str) -> Manifest:
        moment = self.dice.odd(LONG_AGO, TIMES)
        found = {"type": kind, "status": status}
        return found if moment is None else {**found, "lastTransitionTime": moment}

    def taint(self) -> Manifest:
        effect = self.dice.choice(["NoSchedule", "PreferNoSchedule", "NoExecute"])
        value = self.dice.choice(["", LONGEST])
        return {"key": f"t{self.dice.randint(0, 9999)}", "value": value, "effect": effect}

    def small_kinds(self) -> None:
        dice = self.dice
        value = dice.odd(1000, (-(2**31), 1_000_000_000, 0))
        klass = self.put("priority_classes", "scheduling.k8s.io/v1", "PriorityClass", "c0", None)
        klass["value"] = value
        storage = self.put("storage_classes", "storage.k8s.io/v1", "StorageClass", "s0", None)
        mode = dice.choice(["Immediate", "WaitForFirstConsumer"])
        storage |= {"provisioner": "p.example.com", "volumeBindingMode": mode}
        volume = self.put("volumes", "v1", "PersistentVolume", "pv0", None)
        capacity = dice.odd("1Gi", ("9" * 400, "8Ei", "1n", "1e18"))
        volume["spec"] = {
            "capacity": {"storage": capacity},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s0",
            "csi": {"driver": "p.example.com", "volumeHandle": "h"},
        }
        claim = self.put("claims", "v1", "PersistentVolumeClaim", "data", "t0")
        claim["spec"] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s0",
            "resources": {"requests": {"storage": dice.odd("1Gi", ("9" * 400, "8Ei", "1n"))}},
        }
        csi = self.put("csi_nodes", "storage.k8s.io/v1", "CSINode", "n0", None)
        count = {"count": dice.odd(8, (0, INT32))}
        driver = {"name": "p.example.com", "nodeID": "n0", "allocatable": count}
        csi["spec"] = {"drivers": [driver]}

    def workload(self, name: str) -> None:
        dice = self.dice
        kind = dice.choice(
            ["Deployment"] * 6
            + ["ReplicaSet", "StatefulSet", "StatefulSet", "DaemonSet", "Job", "none", "Custom"]
            + ["ReplicationController"]
        )
        namespace = dice.choices(["t0", "t1", "kube-system"], [5, 5, 1])[0]
        count = dice.odd(dice.randint(2, 4), (1,))
        labels = {"app": name, **self.labels(1)}
        template = {"metadata": {"labels": labels}, "spec": self.pod_spec(kind)}
        owner = self.owner(kind, name, namespace, count, template)
        for number in range(count):
            self.pod(name, number, namespace, owner, template)

    def owner(
        self, kind: str, name: str, namespace: str, count: int, template: Manifest
    ) -> Manifest | None:
        if kind == "none":
            return None
        if kind == "Custom":
            uid = uid_of(f"custom/{name}")
            return {"apiVersion": "example.com/v1", "kind": "Thing", "name": name, "uid": uid}
        if kind == "Deployment":
            above = self.controller(kind, name, namespace, count, template, None)
            return self.controller("ReplicaSet", f"{name}-1", namespace, count, template, above)
        return self.controller(kind, name, namespace, count, template, None)

    def controller(
        self,
        kind: str,
        name: str,
        namespace: str,
        count: int,
        template: Manifest,
        above: Manifest | None,
    ) -> Manifest:
        dice = self.dice
        table, version = _TABLES[kind]
        made = self.put(table, version, kind, name, namespace)
        own = _reference(made)
        if dice.maybe(0.03):
            above = own
        if above is not None:
            made["metadata"]["ownerReferences"] = [above]
        replicas = dice.odd(count, (0, 1, INT32))
        status = dice.odd(count, (0, INT32))
        match = {"app": template["metadata"]["labels"]["app"]}
        selector = match if kind == "ReplicationController" else {"matchLabels": match}
        spec: Manifest = {"template": template, "selector": selector, "replicas": replicas}
        if kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
            spec["minReadySeconds"] = dice.odd(0, (1, 3600))
        if kind == "DaemonSet":
            del spec["replicas"]
        if kind == "StatefulSet":
            spec["serviceName"] = name
        if kind == "Job":
            spec = {"template": template, "parallelism": replicas}
        made["spec"] = spec
        made["status"] = {"observedGeneration": dice.odd(1, (0, INT64))} | dict.fromkeys(
            ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), status
        )
        if kind == "Job":
            made["status"] = {"active": count, "ready": count}
        if kind == "DaemonSet":
            made["status"] = {"desiredNumberScheduled": count, "numberReady": count}
        return own

    def pod_spec(self, kind: str) -> Manifest:
        dice = self.dice
        spec: Manifest = {
            "containers": [self.container(n) for n in range(dice.odd(1, (2, 30)))],
            "terminationGracePeriodSeconds": dice.odd(30, (0, 1, INT64, 86_400)),
            "restartPolicy": "Never" if kind == "Job" else "Always",
            "schedulerName": dice.odd("default-scheduler", ("other", "o" * 63)),
        }
        if dice.maybe(0.05):
            spec["initContainers"] = [self.container(99)]
        if dice.maybe(0.06):
            spec["nodeSelector"] = dice.choice([{"k0": "a"}, {ZONE: "z1"}, {"none": LONGEST}])
        if dice.maybe(0.12):
            spec["affinity"] = self.affinity()
        if dice.maybe(0.12):
            spec["tolerations"] = dice.some(self.toleration, 3)
        if dice.maybe(0.1):
            spec["topologySpreadConstraints"] = self.spread()
        if dice.maybe(0.12):
            spec["volumes"] = [self.volume(n) for n in range(dice.randint(1, 2))]
        if dice.maybe(0.05):
            spec["priorityClassName"] = "c0"
        return spec

    def container(self, number: int) -> Manifest:
        dice = self.dice
        asked = {"cpu": self.quantity("100m"), "memory": self.quantity("128Mi")}
        resources: Manifest = {"requests": asked}
        if dice.maybe(0.06):
            amount = dice.choice(["1", str(2**62), str(INT64), "9" * 400])
            resources["requests"] = {**asked, "example.com/x": amount}
            resources["limits"] = {"example.com/x": amount}
        if dice.maybe(0.04):
            resources = {}
        made: Manifest = {"name": f"c{number}", "image": "img-0", "resources": resources}
        if dice.maybe(0.05):
            made["ports"] = [
                {"containerPort": 1, "hostPort": dice.choice([1 + number, 65535 - number])}
            ]
        return made

    def selector(self) -> Manifest:
        dice = self.dice
        values = ["a"] * dice.odd(1, (200,))
        return dice.choice(
            [
                {},
                {"matchLabels": {"app": f"w{dice.randint(0, 4)}"}},
                {"matchExpressions": [{"key": "k0", "operator": "In", "values": values}]},
                {"matchExpressions": [{"key": "k1", "operator": "NotIn", "values": [LONGEST]}]},
                {"matchExpressions": [{"key": "k2", "operator": "DoesNotExist"}]},
            ]
        )

    def pod_term(self) -> Manifest:
        dice = self.dice
        term: Manifest = {
            "labelSelector": self.selector(),
            "topologyKey": dice.choice([HOST, ZONE]),
        }
        if dice.maybe(0.3):
            term["namespaceSelector"] = {}
        return term

    def affinity(self) -> Manifest:
        dice = self.dice
        many = dice.odd(1, (60,))
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        weighted = [{"weight": 100, "podAffinityTerm": self.pod_term()} for _ in range(many)]
        numbers = [str(dice.choice([0, 1, INT64]))]
        expression = {"key": "k0", "operator": dice.choice(["Gt", "Lt"]), "values": numbers}
        nodes = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        return dice.choice(
            [
                {"podAntiAffinity": {required: [self.pod_term() for _ in range(many)]}},
                {"podAntiAffinity": {preferred: weighted}},
                {"podAffinity": {preferred: weighted}},
                {"podAffinity": {required: [self.pod_term()]}},
                {"nodeAffinity": {required: nodes}},
                {"nodeAffinity": {preferred: [{"weight": 100, "preference": {}}]}},
            ]
        )

    def toleration(self) -> Manifest:
        dice = self.dice
        seconds = dice.odd(300, (INT64, -INT64 - 1, 0))
        return dice.choice(
            [
                {"operator": "Exists"},
                {"key": "t1", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "t2", "effect": "NoExecute", "tolerationSeconds": seconds},
            ]
        )

    def spread(self) -> list[Manifest]:
        dice = self.dice
        hard = dice.maybe(0.5)
        found: Manifest = {
            "maxSkew": dice.odd(1, (INT32,)),
            "topologyKey": dice.choice([HOST, ZONE]),
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            "labelSelector": self.selector(),
        }
        if hard and dice.maybe(0.3):
            found["minDomains"] = dice.odd(2, (INT32,))
        return [found]

    def volume(self, number: int) -> Manifest:
        sources: list[Manifest] = [
            {"emptyDir": {}},
            {"emptyDir": {"medium": "Memory"}},
            {"hostPath": {"path": "/x"}},
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"persistentVolumeClaim": {"claimName": "missing"}},
        ]
        source = self.dice.choice(sources)
        return {"name": f"v{number}", **source}

    def pod(
        self, workload: str, number: int, namespace: str, owner: Manifest | None, template: Manifest
    ) -> None:
        dice = self.dice
        labels = dict(template["metadata"]["labels"])
        if dice.maybe(0.05):
            labels[RESCHEDULING_LABEL] = "disabled"
        if dice.maybe(0.05):
            labels["keep"] = "me"
        annotations = self.annotations()
        refs = [{**owner, "controller": dice.odd(True, (False,), 0.03)}] if owner else None
        made = self.put(
            "pods",
            "v1",
            "Pod",
            f"{workload}-{number}",
            namespace,
            labels=labels,
            annotations=annotations,
            ownerReferences=refs,
            deletionTimestamp=dice.odd(None, ("2027-01-15T08:00:30Z",), 0.05),
        )
        made["spec"] = {
            **template["spec"],
            "nodeName": dice.odd(dice.choice(self.nodes), ("gone",)),
        }
        made["spec"]["priority"] = dice.odd(0, (INT32, 2_000_000_000, -(2**31), 1_000_000_000))
        ready = dice.odd("True", ("False",))
        conditions = [self.condition("PodScheduled", "True"), self.condition("Ready", ready)]
        made["status"] = {"phase": dice.odd("Running", ("Pending",)), "conditions": conditions}
        start = dice.odd(LONG_AGO, TIMES)
        if start is not None:
            made["status"]["startTime"] = start
        key = f"{namespace}/{workload}-{number}"
        self.made.pod_percent[key] = (
            dice.odd(dice.random() * 40, (0.0, 1e30)),
            dice.random() * 20,
        )

    def annotations(self) -> dict[str, str] | None:
        dice = self.dice
        if not dice.maybe(0.2):
            return None
        return dice.choice(
            [
                {SAFE_TO_EVICT: "false"},
                {DO_NOT_DISRUPT: "true"},
                {PREFER_NO_EVICTION: ""},
                {MIRROR_POD: "x"},
                {DELETION_COST: dice.choice(["1", str(-INT32), str(INT32)])},
                {f"a{n}": "x" * 100 for n in range(100)},
            ]
        )

    def budget(self, name: str) -> None:
        dice = self.dice
        made = self.put(
            "budgets", "policy/v1", "PodDisruptionBudget", name, dice.choice(["t0", "t1"])
        )
        which = dice.choice(["minAvailable", "maxUnavailable"])
        amount: int | str = dice.choice((0, 1, INT32, *PERCENTS))
        made["spec"] = {which: amount, "selector": self.selector()}
        made["status"] = {
            "observedGeneration": dice.odd(1, (0, INT64)),
            "disruptionsAllowed": dice.odd(1, (0, INT32)),
            "currentHealthy": dice.odd(3, (0, INT32)),
            "desiredHealthy": dice.odd(2, (0, INT32)),
            "expectedPods": dice.odd(3, (0, INT32)),
        }


def _reference(made: Manifest) -> Manifest:
    meta = made["metadata"]
    named = {"name": meta["name"], "uid": meta["uid"], "controller": True}
    return {"apiVersion": made["apiVersion"], "kind": made["kind"], **named}


_TABLES = {
    "Deployment": ("deployments", "apps/v1"),
    "ReplicaSet": ("replica_sets", "apps/v1"),
    "StatefulSet": ("stateful_sets", "apps/v1"),
    "DaemonSet": ("daemon_sets", "apps/v1"),
    "Job": ("jobs", "batch/v1"),
    "ReplicationController": ("replication_controllers", "v1"),
}
