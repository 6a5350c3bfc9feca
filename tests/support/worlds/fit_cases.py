# SPDX-License-Identifier: Apache-2.0
"""Random clusters and pods, for comparing our fit with someone else's.

Small enough to read and varied enough that every family of predicates decides something.
The same seed gives the same cluster.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import msgspec

from common.api.objects import Pod
from common.cache.snapshot import Snapshot
from common.fit.candidate import Candidate
from common.fit.cases import Case, candidate_of, snapshot_of
from simulator import build
from simulator.build import Manifest
from tests.support.worlds.fit_dice import (
    APPS,
    FEATURE,
    GPU,
    HOSTNAME,
    KINDS,
    NAMESPACES,
    OLD_ZONE,
    OVERHEAD,
    OWNER,
    PRIORITIES,
    RUNTIME,
    STATE,
    TERMINATING,
    ZONE,
    ZONES,
    ClusterCase,
    Dice,
)
from tests.support.worlds.fit_pods import bound_pods, candidates, nominated_pods
from tests.support.worlds.fit_storage import csi_nodes, pruned, storage
from tests.support.worlds.fit_themes import PREFERRED, REQUIRED, soften
from tests.support.worlds.wire import uid_of

NODE_COUNT = (8, 12)
CANDIDATES = 25


def random_case(
    seed: int, *, nodes: tuple[int, int] = NODE_COUNT, pods: int = CANDIDATES
) -> ClusterCase:
    """Return the cluster of a seed, with so many nodes and pods to be judged."""
    dice = Dice(seed)
    case = ClusterCase(seed=seed)
    case.nodes.extend(_node(dice, case, i) for i in range(dice.randint(*nodes)))
    case.namespaces.extend(_namespace(dice, name) for name in NAMESPACES)
    storage(dice, case)
    csi_nodes(dice, case)
    case.pods.extend(bound_pods(dice, case))
    case.pods.extend(nominated_pods(dice, case))
    case.candidates.extend(candidates(dice, case, pods))
    return pruned(case)


def _node(dice: Dice, case: ClusterCase, number: int) -> Manifest:
    name = f"{case.prefix}-n{number}"
    labels: dict[str, str] = {}
    if dice.chance(0.9):
        labels[ZONE] = dice.choice(ZONES)
    if dice.chance(0.1):
        labels[OLD_ZONE] = dice.choice(ZONES)
    if dice.chance(0.8):
        labels["disk"] = dice.choice(("ssd", "hdd"))
    if dice.chance(0.8):
        labels["size"] = str(dice.randint(1, 5))
    node = build.node(
        name,
        cpu=dice.choice(("2", "4", "8")),
        memory=dice.choice(("4Gi", "8Gi", "16Gi")),
        pods=dice.choice((4, 8, 20, 20)),
        labels=labels,
        taints=_taints(dice),
        unschedulable=dice.chance(0.12),
        extended={"ephemeral-storage": dice.choice(("10Gi", "40Gi")), **_extended(dice)},
    )
    if dice.chance(0.05):
        del node["metadata"]["labels"][HOSTNAME]
    if dice.chance(0.6):
        node["status"]["declaredFeatures"] = [FEATURE]
    return node


def _extended(dice: Dice) -> dict[str, str]:
    found = {}
    if dice.chance(0.5):
        found[GPU] = str(dice.randint(0, 4))
    if dice.chance(0.3):
        found["hugepages-2Mi"] = dice.choice(("64Mi", "256Mi"))
    return found


def _taints(dice: Dice) -> list[Manifest]:
    kinds = [
        ("team", dice.choice(("red", "blue")), "NoSchedule"),
        ("spot", "", "NoExecute"),
        ("slow", "yes", "PreferNoSchedule"),
        ("node.kubernetes.io/not-ready", "", "NoExecute"),
    ]
    chosen = [kind for kind in kinds if dice.chance(0.1)]
    return [{"key": key, "value": value, "effect": effect} for key, value, effect in chosen]


def _namespace(dice: Dice, name: str) -> Manifest:
    labels: dict[str, str] = {}
    if dice.chance(0.7):
        labels["team"] = dice.choice(("a", "b"))
    if dice.chance(0.3):
        labels["shared"] = "yes"
    return build.namespace(name, labels=labels)


def softened(case: ClusterCase) -> ClusterCase:
    """Return a case about scores: preferences, images, and controllers that spread pods.

    Left out are pods whose binding would wait for a volume, and pods with requests of
    their own beside their containers', which the real score of free room overlooks.
    """
    dice = Dice(case.seed)
    made = [c for c in case.candidates if not {"volumes", "resources"} & set(c["spec"])]
    found = copy.deepcopy(replace(case, candidates=made, replicasets=_controllers(case)))
    for pod in (*found.candidates, *found.pods):
        soften(dice, found, pod)
    for pod in found.candidates:
        if "topologySpreadConstraints" not in pod["spec"]:
            owner = (
                f"{case.prefix}-{pod['metadata']['namespace']}-{pod['metadata']['labels']['app']}"
            )
            pod["metadata"]["annotations"][OWNER] = owner
    for node in found.nodes:
        if dice.chance(0.5):
            node["status"]["images"] = [{"names": [build.IMAGE], "sizeBytes": 300 << 20}]
    return found


def _controllers(case: ClusterCase) -> list[Manifest]:
    return [
        build.replica_set(
            f"{case.prefix}-{namespace}-{app}", 0, namespace=namespace, labels={"app": app}
        )
        for namespace in NAMESPACES
        for app in APPS
    ]


def told(case: ClusterCase) -> Case:
    """Return the cluster of a case as an API server would show it, without a pod to judge."""
    seen: dict[str, Any] = {kind: [_told(m) for m in getattr(case, kind)] for kind in KINDS}
    seen["pod"] = {"metadata": {"name": "nobody"}}
    return msgspec.convert(seen, Case)


def snapshot(case: ClusterCase) -> Snapshot:
    """Return the cluster of a case."""
    return snapshot_of(told(case))


def pods_to_judge(case: ClusterCase) -> list[Candidate]:
    """Return the candidates of a case."""
    return [candidate_of(msgspec.convert(_told(pod), Pod)) for pod in case.candidates]


def _told(manifest: Manifest) -> Manifest:
    """Return an object with what the API server and its controllers add."""
    metadata = dict(manifest["metadata"])
    metadata["uid"] = uid_of(f"{manifest['kind']}/{metadata.get('namespace')}/{metadata['name']}")
    if metadata.get("annotations", {}).get(STATE) == TERMINATING:
        metadata["deletionTimestamp"] = "2026-11-16T09:00:00Z"
    owner = metadata.get("annotations", {}).get(OWNER)
    if owner:
        uid = uid_of(f"ReplicaSet/{metadata['namespace']}/{owner}")
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    found = {**manifest, "metadata": metadata}
    return {**found, "spec": _admitted(found)} if manifest["kind"] == "Pod" else found


def _admitted(pod: Manifest) -> Manifest:
    """Return a pod's spec as admission leaves it."""
    spec: Manifest = copy.deepcopy(pod["spec"])
    spec["priority"] = PRIORITIES.get(spec.get("priorityClassName", ""), 0)
    if spec.get("runtimeClassName") == RUNTIME:
        spec["overhead"] = OVERHEAD
    failing = ("not-ready", "unreachable")
    graces = [
        {"key": f"node.kubernetes.io/{k}", "operator": "Exists", "effect": "NoExecute"}
        for k in failing
    ]
    spec["tolerations"] = [*spec.get("tolerations", ()), *graces]
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = spec.get("affinity", {}).get(kind, {})
        preferred = (each["podAffinityTerm"] for each in rules.get(PREFERRED, ()))
        for term in (*rules.get(REQUIRED, ()), *preferred):
            _merge_keys(term, pod["metadata"]["labels"])
    return spec


def _merge_keys(term: Manifest, labels: Manifest) -> None:
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field, ()):
            demand = {"key": key, "operator": operator, "values": [labels[key]]}
            term["labelSelector"].setdefault("matchExpressions", []).append(demand)
