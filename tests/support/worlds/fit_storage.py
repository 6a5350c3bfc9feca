# SPDX-License-Identifier: Apache-2.0
"""Random claims, volumes, classes and CSI drivers for `fit_cases`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simulator.build import Manifest
from tests.support.worlds.fit_dice import (
    DRIVER,
    HOSTNAME,
    NAMESPACES,
    OLD_ZONE,
    STATE,
    TERMINATING,
    ZONE,
    ZONES,
    ClusterCase,
    Dice,
    name_of,
)

COMPLETE = "pv.kubernetes.io/bind-completed"
SELECTED = "volume.kubernetes.io/selected-node"
UNUSABLE = "unusable"
"""Label of claims that keep a pod from every node: few candidates should have one."""


def storage(dice: Dice, case: ClusterCase) -> None:
    """Fill a case with classes, volumes and claims; every claim's name tells its kind."""
    case.storageclasses.extend(_classes(dice, case))
    for namespace in NAMESPACES:
        for kind, make in KINDS.items():
            make(dice, case, f"{case.prefix}-{namespace}-{kind}", namespace)
    for number in range(dice.randint(4, 7)):
        case.pvs.append(_free_volume(dice, case, number))


def csi_nodes(dice: Dice, case: ClusterCase) -> None:
    """Tell of most nodes how many volumes they can attach."""
    for node in case.nodes:
        if dice.chance(0.85):
            driver: Manifest = {"name": DRIVER, "nodeID": name_of(node), "topologyKeys": []}
            if dice.chance(0.8):
                driver["allocatable"] = {"count": dice.choice((1, 1, 2, 3, 6))}
            case.csinodes.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {"name": name_of(node)},
                    "spec": {"drivers": [driver]},
                }
            )


def pruned(case: ClusterCase) -> ClusterCase:
    """Leave out claims that no one uses, and their volumes."""
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in (*case.pods, *case.candidates)
        for volume in pod["spec"].get("volumes", ())
        if "persistentVolumeClaim" in volume
    }
    unused = {name_of(claim) for claim in case.pvcs} - used
    return replace(
        case,
        pvcs=[claim for claim in case.pvcs if name_of(claim) not in unused],
        pvs=[volume for volume in case.pvs if name_of(volume) not in unused],
    )


def class_name(case: ClusterCase, kind: str) -> str:
    return f"{case.prefix}-{kind}"


def _classes(dice: Dice, case: ClusterCase) -> list[Manifest]:
    made = _class(case, "made", DRIVER)
    if dice.chance(0.8):
        term = {"key": ZONE, "values": dice.some(ZONES, 2)}
        made["allowedTopologies"] = [{"matchLabelExpressions": [term]}]
    found = _class(case, "found", "kubernetes.io/no-provisioner")
    now = _class(case, "now", DRIVER)
    now["volumeBindingMode"] = "Immediate"
    return [made, found, now]


def _class(case: ClusterCase, kind: str, provisioner: str) -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": class_name(case, kind)},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _claim(
    case: ClusterCase, name: str, namespace: str, *, kind: str, size: str = "1Gi"
) -> Manifest:
    claim: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "annotations": {}, "labels": {}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name(case, kind),
            "resources": {"requests": {"storage": size}},
        },
    }
    case.pvcs.append(claim)
    return claim


def _volume(case: ClusterCase, name: str, *, kind: str, size: str = "1Gi") -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name(case, kind),
            "csi": {"driver": DRIVER, "volumeHandle": name},
        },
        "status": {"phase": "Available"},
    }


def _bound(case: ClusterCase, name: str, namespace: str, mode: str = "ReadWriteOnce") -> Manifest:
    """Add a claim with its volume; return the volume."""
    claim = _claim(case, name, namespace, kind="now")
    volume = _volume(case, name, kind="now")
    claim["spec"]["volumeName"] = name
    claim["spec"]["accessModes"] = volume["spec"]["accessModes"] = [mode]
    claim["metadata"]["annotations"][COMPLETE] = "yes"
    claim["status"] = {"phase": "Bound"}
    volume["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
    }
    volume["status"] = {"phase": "Bound"}
    case.pvs.append(volume)
    return volume


def _affinity(key: str, values: list[str]) -> Manifest:
    expression = {"key": key, "operator": "In", "values": values}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _plain(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    _bound(case, name, namespace)


def _zonal(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    volume = _bound(case, name, namespace)
    volume["spec"]["nodeAffinity"] = _affinity(ZONE, dice.some(ZONES, 2))


def _local(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    volume = _bound(case, name, namespace)
    del volume["spec"]["csi"]
    volume["spec"]["local"] = {"path": "/data"}
    volume["spec"]["nodeAffinity"] = _affinity(
        HOSTNAME, [name_of(node) for node in dice.some(case.nodes, 5)]
    )


def _labelled(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    volume = _bound(case, name, namespace)
    label = dice.choice((ZONE, ZONE, OLD_ZONE))
    volume["metadata"]["labels"][label] = "__".join(dice.some(ZONES, 2))


def _exclusive(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    _bound(case, name, namespace, "ReadWriteOncePod")


def _made(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    claim = _claim(case, name, namespace, kind="made")
    if dice.chance(0.1):
        claim["metadata"]["annotations"][SELECTED] = name_of(dice.choice(case.nodes))


def _found(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    claim = _claim(case, name, namespace, kind="found", size=dice.choice(("1Gi", "4Gi")))
    if dice.chance(0.3):
        claim["spec"]["selector"] = {"matchLabels": {"tier": dice.choice(("gold", "tin"))}}


def _second(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    _claim(case, name, namespace, kind="found", size="3Gi")


def _unbound(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    _claim(case, name, namespace, kind="now")["metadata"]["labels"][UNUSABLE] = "yes"


def _leaving(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    _bound(case, name, namespace)
    claim = case.pvcs[-1]
    claim["metadata"]["labels"][UNUSABLE] = "yes"
    claim["metadata"]["annotations"][STATE] = TERMINATING


def _lost(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    _bound(case, name, namespace)
    case.pvcs[-1]["metadata"]["labels"][UNUSABLE] = "yes"
    case.pvcs[-1]["status"] = {"phase": "Lost"}


def _orphan(dice: Dice, case: ClusterCase, name: str, namespace: str) -> None:
    _bound(case, name, namespace)
    case.pvcs[-1]["metadata"]["labels"][UNUSABLE] = "yes"
    case.pvs.pop()


def _free_volume(dice: Dice, case: ClusterCase, number: int) -> Manifest:
    # No two of a size: which of equals the scheduler takes is left to chance.
    volume = _volume(case, f"{case.prefix}-free{number}", kind="found", size=f"{number + 2}Gi")
    volume["metadata"]["labels"] = {"tier": dice.choice(("gold", "tin"))}
    volume["spec"]["nodeAffinity"] = _affinity(ZONE, dice.some(ZONES, 2))
    if dice.chance(0.2):
        volume["spec"]["accessModes"] = ["ReadOnlyMany"]
    if dice.chance(0.15):
        volume["status"]["phase"] = "Released"
    # Of two that wait for the same claim the scheduler takes the first it comes upon.
    if number < len(NAMESPACES) and dice.chance(0.4):
        claim = f"{case.prefix}-{NAMESPACES[number]}-found"
        volume["spec"]["claimRef"] = {"namespace": NAMESPACES[number], "name": claim}
    return volume


KINDS: dict[str, Callable[[Dice, ClusterCase, str, str], None]] = {
    "plain": _plain,
    "plain2": _plain,
    "zonal": _zonal,
    "local": _local,
    "labelled": _labelled,
    "exclusive": _exclusive,
    "made": _made,
    "found": _found,
    "second": _second,
    "unbound": _unbound,
    "leaving": _leaving,
    "lost": _lost,
    "orphan": _orphan,
}
