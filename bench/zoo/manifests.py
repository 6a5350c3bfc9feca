# SPDX-License-Identifier: Apache-2.0
"""What manifests ask of nodes, read for the judge by rules of its own.

Amounts are plain numbers: CPU in millis, everything else in units. A volume that a node can
only attach so many of counts as a request like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from bench.zoo.cluster import Json, ZooCluster

ATTACHED: Final = "attached/"
"""Begins the names of requests that stand for volumes of a driver."""
_SUFFIXES: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_KUBERNETES: Final = "node.kubernetes.io/"


class NotUnderstood(Exception):
    """A manifest that the judge has no rule for."""


def name_of(made: Json) -> str:
    return str(made["metadata"]["name"])


def quantity(resource: str, text: str) -> float:
    """Return an amount; of CPU in millis."""
    if resource == "cpu":
        return float(text[:-1]) if text.endswith("m") else 1000.0 * float(text)
    factor = _SUFFIXES.get(text[-2:])
    return float(text[:-2]) * factor if factor else float(text)


def offered(node: Json, cluster: ZooCluster) -> dict[str, float]:
    """Return what a node has, and how many volumes of each driver it can attach."""
    found = {r: quantity(r, text) for r, text in node["status"]["allocatable"].items()}
    for csi in cluster.objects.get("csinodes", []):
        if name_of(csi) == name_of(node):
            for driver in csi["spec"]["drivers"]:
                found[ATTACHED + driver["name"]] = float(driver["allocatable"]["count"])
    return found


def requested(spec: Json, cluster: ZooCluster) -> Counter[str]:
    """Return what a pod requests: containers, those before them, overhead and volumes."""
    found, first = Counter[str](), Counter[str]()
    for container in spec.get("initContainers", []):
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            found += asked
        first |= found if container.get("restartPolicy") == "Always" else found + asked
    for container in spec["containers"]:
        found += _asked(container)
    found |= first
    found += _amounts(spec.get("overhead", {}))
    for volume in spec.get("volumes", []):
        found[ATTACHED + volume_of(volume, cluster)["spec"]["csi"]["driver"]] += 1
    return found


def _asked(container: Json) -> Counter[str]:
    return _amounts(container.get("resources", {}).get("requests", {}))


def _amounts(texts: Json) -> Counter[str]:
    # A Counter counts whole things; quantities of manifests are whole millis and bytes.
    return Counter({name: round(quantity(name, text)) for name, text in texts.items()})


def host_ports(spec: Json) -> frozenset[str]:
    """Return the ports of its node that a pod needs for itself."""
    return frozenset(
        f"{port['hostPort']}/{port.get('protocol', 'TCP')}"
        for container in spec["containers"]
        for port in container.get("ports", [])
        if "hostPort" in port
    )


def volume_of(volume: Json, cluster: ZooCluster) -> Json:
    """Return the PersistentVolume behind a volume of a pod."""
    claim_name = volume["persistentVolumeClaim"]["claimName"]
    claims = cluster.objects["persistentvolumeclaims"]
    bound = next(c["spec"]["volumeName"] for c in claims if name_of(c) == claim_name)
    return next(v for v in cluster.objects["persistentvolumes"] if name_of(v) == bound)


def reaches(volume: Json, labels: Json, cluster: ZooCluster) -> bool:
    """Tell whether a node with these labels reaches a volume of a pod."""
    wanted = volume_of(volume, cluster)["spec"].get("nodeAffinity")
    return wanted is None or _any_term(wanted["required"]["nodeSelectorTerms"], labels)


def selects(spec: Json, labels: Json) -> bool:
    """Tell whether selector and required affinity of a pod allow a node with these labels."""
    if not spec.get("nodeSelector", {}).items() <= labels.items():
        return False
    affinity = spec.get("affinity", {})
    if set(affinity) - {"podAntiAffinity", "nodeAffinity"}:
        raise NotUnderstood(f"affinity {sorted(affinity)}")
    wanted = affinity.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return wanted is None or _any_term(wanted["nodeSelectorTerms"], labels)


def _any_term(terms: Sequence[Json], labels: Json) -> bool:
    return any(all(_matches(e, labels) for e in term["matchExpressions"]) for term in terms)


def _matches(expression: Json, labels: Json) -> bool:
    value, operator = labels.get(expression["key"]), expression["operator"]
    if operator in ("In", "NotIn"):
        return (value in expression["values"]) is (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) is (operator == "Exists")
    raise NotUnderstood(f"operator {operator}")


def tolerated(taint: Json, spec: Json) -> bool:
    return any(
        t.get("key") in (None, taint["key"])
        and t.get("effect") in (None, taint["effect"])
        and (t.get("operator") == "Exists" or t.get("value", "") == taint.get("value", ""))
        for t in spec.get("tolerations", [])
    )


def ruled_out(spec: Json, node: Json) -> bool:
    """Tell whether the scheduler would not place a pod there, for reasons that last."""
    lasting = (
        taint
        for taint in node["spec"].get("taints", [])
        if taint["effect"] != "PreferNoSchedule" and not taint["key"].startswith(_KUBERNETES)
    )
    return not selects(spec, node["metadata"]["labels"]) or not all(
        tolerated(taint, spec) for taint in lasting
    )


def controllers(cluster: ZooCluster) -> list[Json]:
    plurals = ("replicasets", "statefulsets", "daemonsets")
    return [owner for plural in plurals for owner in cluster.objects.get(plural, [])]
