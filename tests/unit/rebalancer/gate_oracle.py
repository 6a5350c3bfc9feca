# SPDX-License-Identifier: Apache-2.0
"""An independent judge: which evictions the requirements forbid, from the objects alone.

Written from the text of the promises (which pods may be moved, and where to), and on purpose
without anything of the product's gates, selectors, quantities or fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any

from common.api.contract import (
    DO_NOT_DISRUPT,
    MAINTENANCE_LABEL,
    MIRROR_POD,
    PREFER_NO_EVICTION,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from simulator.build import Manifest
from tests.support.worlds.fuzz_objects import CONTROL_PLANE, FuzzCluster

SYSTEM_PRIORITY = 2_000_000_000
EXCLUDED = ("kube-system", "kube-public")
REPLACING = {("apps/v1", "ReplicaSet"), ("v1", "ReplicationController"), ("apps/v1", "StatefulSet")}
_UNITS = {"n": "1e-9", "u": "1e-6", "m": "1e-3", "k": "1e3", "M": "1e6", "G": "1e9"}
_UNITS |= {"T": "1e12", "P": "1e15", "E": "1e18"}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class GateOracle:
    """Judges what was written for one cluster."""

    def __init__(self, cluster: FuzzCluster) -> None:
        self.pods = {pod["metadata"]["uid"]: pod for pod in cluster.of("pods")}
        self.nodes = {node["metadata"]["name"]: node for node in cluster.of("nodes")}
        self.budgets = cluster.of("budgets")
        tables = ("replica_sets", "replication_controllers", "stateful_sets", "deployments")
        self.owners = {
            (made["kind"], made["metadata"]["namespace"], made["metadata"]["uid"]): made
            for table in tables
            for made in cluster.of(table)
        }

    def forbidden(self, specs: list[dict[str, Any]]) -> list[str]:
        """Return what stands against the Migrations that were written, in words."""
        return [*self._each(specs), *self._together(specs)]

    def _each(self, specs: list[dict[str, Any]]) -> Iterator[str]:
        for spec in specs:
            pod = self.pods[spec["pod"]["uid"]]
            load = spec["reason"] != "Maintenance"
            for why in (*self._pod(pod, load=load), *self._target(pod, spec)):
                yield f"{spec['pod']['name']} to {spec['target']}: {why}"

    def _pod(self, pod: Manifest, *, load: bool) -> Iterator[str]:
        meta, spec = pod["metadata"], pod["spec"]
        labels, notes = meta.get("labels", {}), meta.get("annotations", {})
        if spec.get("priority", 0) >= SYSTEM_PRIORITY or meta["namespace"] in EXCLUDED:
            yield "a system pod"
        if MIRROR_POD in notes:
            yield "a mirror pod"
        if "deletionTimestamp" in meta or pod["status"]["phase"] in ("Succeeded", "Failed"):
            yield "terminating or finished"
        if labels.get(RESCHEDULING_LABEL) == "disabled" or labels.get("keep") == "me":
            yield "excluded by its labels"
        if notes.get(SAFE_TO_EVICT) == "false" or notes.get(DO_NOT_DISRUPT) == "true":
            yield "not to be disrupted"
        if PREFER_NO_EVICTION in notes:
            yield "asks not to be evicted"
        if load and spec["schedulerName"] != "default-scheduler":
            yield "placed by another scheduler"
        if any(_is_local(volume) for volume in spec.get("volumes", ())):
            yield "has local storage"
        yield from self._owner(pod, load=load)

    def _owner(self, pod: Manifest, *, load: bool) -> Iterator[str]:
        refs = [r for r in pod["metadata"].get("ownerReferences", ()) if r.get("controller")]
        if not refs or (refs[0]["apiVersion"], refs[0]["kind"]) not in REPLACING:
            yield "no owner that replaces its pods"
            return
        namespace = pod["metadata"]["namespace"]
        chain = self._chain(refs[0], namespace)
        if chain is None:
            yield "owners that own each other"
            return
        if not chain:
            yield "its owner is not there"
            return
        top, own = chain[-1], chain[0]
        # A Deployment may get one more replica for the move.
        if top["spec"]["replicas"] <= 1 and top["kind"] != "Deployment":
            yield "the only replica"
        short = top["status"]["availableReplicas"] < top["spec"]["replicas"]
        if load and short:
            yield "its workload is short of available pods"
        ready = own["status"]["readyReplicas"]
        if own["kind"] == "StatefulSet" and ready < own["spec"]["replicas"]:
            yield "its StatefulSet is not complete"

    def _chain(self, ref: Manifest, namespace: str) -> list[Manifest] | None:
        found: list[Manifest] = []
        while ref is not None:
            owner = self.owners.get((ref["kind"], namespace, ref["uid"]))
            if owner is None:
                return found
            if owner in found:
                return None
            found.append(owner)
            above = [r for r in owner["metadata"].get("ownerReferences", ()) if r["controller"]]
            if not above:
                return found
            ref = above[0]
        return found

    def _target(self, pod: Manifest, spec: dict[str, Any]) -> Iterator[str]:
        node = self.nodes[spec["target"]]
        labels = node["metadata"]["labels"]
        ready = [c for c in node["status"]["conditions"] if c["type"] == "Ready"]
        if CONTROL_PLANE in labels:
            yield "a control-plane node"
        if MAINTENANCE_LABEL in labels:
            yield "a node under maintenance"
        if node["spec"].get("unschedulable"):
            yield "an unschedulable node"
        if not ready or ready[0]["status"] != "True":
            yield "a node that is not ready"
        if any(labels.get(k) != v for k, v in pod["spec"].get("nodeSelector", {}).items()):
            yield "a node that its nodeSelector does not allow"
        if any(not _tolerated(taint, pod) for taint in node["spec"].get("taints", ())):
            yield "a tainted node"
        yield from self._room(pod, spec)

    def _room(self, pod: Manifest, spec: dict[str, Any]) -> Iterator[str]:
        gone = set(spec.get("needs", ()))
        there = [
            other
            for uid, other in self.pods.items()
            if other["spec"]["nodeName"] == spec["target"] and uid not in gone
        ]
        has = self.nodes[spec["target"]]["status"]["allocatable"]
        asked = _requests(pod)
        for name, amount in asked.items():
            taken = sum((_requests(other).get(name, Decimal(0)) for other in there), Decimal(0))
            if amount > 0 and taken + amount > _number(has.get(name, "0")):
                yield f"a node without room for its {name}"
        if len(there) + 1 > _number(has.get("pods", "0")):
            yield "a node without a place"

    def _owners(self, uid: str) -> set[str]:
        return {ref["uid"] for ref in self.pods[uid]["metadata"].get("ownerReferences", ())}

    def _together(self, specs: list[dict[str, Any]]) -> Iterator[str]:
        spent: Counter[str] = Counter()
        sets: Counter[str] = Counter()
        for spec in specs:
            pod = self.pods[spec["pod"]["uid"]]
            # Budgets do not count for pods that run nothing yet (canIgnorePDB, eviction.go).
            runs = pod["status"]["phase"] == "Running"
            covering = [b for b in self.budgets if runs and _covers(b, pod)]
            if len(covering) > 1:
                yield f"{spec['pod']['name']}: two budgets cover it"
            # A surge brings the healthy pod that it takes.
            if _is_ready(pod) and not spec.get("surge"):
                spent.update(b["metadata"]["uid"] for b in covering)
            refs = pod["metadata"].get("ownerReferences", ())
            own = {r["uid"] for r in refs if r["kind"] == "StatefulSet"}
            # One that waits until another member is gone is evicted only while all are Ready.
            waits = any(own & self._owners(uid) for uid in spec.get("needs") or ())
            sets.update(() if waits else own)
        for budget in self.budgets:
            left, name = budget["status"]["disruptionsAllowed"], budget["metadata"]["name"]
            if pods := spent[budget["metadata"]["uid"]]:
                if pods > left:
                    yield f"{pods} pods of budget {name}, which allows {left}"
                if budget["status"]["observedGeneration"] < 1:
                    yield f"budget {name} was not counted yet"
        yield from (f"{n} pods of one StatefulSet at once" for n in sets.values() if n > 1)


def _is_local(volume: Manifest) -> bool:
    return "hostPath" in volume or volume.get("emptyDir", {"medium": "Memory"}) == {}


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"]["conditions"]
    running = pod["status"]["phase"] == "Running"
    return running and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _tolerated(taint: Manifest, pod: Manifest) -> bool:
    if taint["effect"] == "PreferNoSchedule":
        return True
    for each in pod["spec"].get("tolerations", ()):
        effect = each.get("effect") in (None, taint["effect"])
        key = each.get("key") in (None, taint["key"])
        value = each.get("operator") == "Exists" or each.get("value", "") == taint["value"]
        if effect and key and value:
            return True
    return False


def _covers(budget: Manifest, pod: Manifest) -> bool:
    if budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    labels, selector = pod["metadata"]["labels"], budget["spec"]["selector"]
    if any(labels.get(k) != v for k, v in selector.get("matchLabels", {}).items()):
        return False
    for each in selector.get("matchExpressions", ()):
        value, operator = labels.get(each["key"]), each["operator"]
        if operator == "In" and value not in each["values"]:
            return False
        if operator == "NotIn" and value in each["values"]:
            return False
        if operator == "DoesNotExist" and value is not None:
            return False
    return True


def _requests(pod: Manifest) -> dict[str, Decimal]:
    """Return what the scheduler charges: the sum of the containers, or one that comes first."""
    total: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        for name, text in container["resources"].get("requests", {}).items():
            total[name] = total.get(name, Decimal(0)) + _number(text)
    for container in pod["spec"].get("initContainers", ()):
        for name, text in container["resources"].get("requests", {}).items():
            total[name] = max(total.get(name, Decimal(0)), _number(text))
    return total


def _number(text: str) -> Decimal:
    with localcontext() as context:
        context.prec = 500
        for unit, power in _BINARY.items():
            if text.endswith(unit):
                return Decimal(text.removesuffix(unit)) * Decimal(2**power)
        if text[-1] in _UNITS:
            return Decimal(text[:-1]) * Decimal(_UNITS[text[-1]])
        return Decimal(text)
