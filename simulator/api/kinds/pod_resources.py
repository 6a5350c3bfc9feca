# SPDX-License-Identifier: Apache-2.0
"""The resources of a pod: requests derived from limits, and its QoS class.

Follows SetDefaults_Pod (pkg/apis/core/v1/defaults.go) and ComputePodQOS
(pkg/apis/core/helper/qos) of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from common.cluster import quantities as quantity
from simulator.api.kinds.templates import containers
from simulator.api.storage import Json

_COMPUTE: Final = ("cpu", "memory")


def default_requests(spec: Json) -> None:
    """Default requests to limits, for containers and then for the pod."""
    for container in containers(spec):
        resources = container["resources"]
        for name, limit in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, limit)
    level = spec.get("resources")
    if level and level.get("limits"):
        _default_pod_requests(level, _asked_milli(spec))


def _default_pod_requests(level: Json, asked_milli: dict[str, int]) -> None:
    requests = level.setdefault("requests", {})
    for name in _COMPUTE:
        if name in asked_milli:
            requests.setdefault(name, f"{asked_milli[name]}m")
    for name, limit in level["limits"].items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            requests.setdefault(name, limit)


def _asked_milli(spec: Json) -> dict[str, int]:
    """Sum the requests of the containers, with init containers and sidecars."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        for name, amount in _requests_milli(container).items():
            total = running.get(name, 0) + amount
            peak[name] = max(peak.get(name, 0), total)
            if container.get("restartPolicy") == "Always":
                running[name] = total
    for container in spec.get("containers") or ():
        for name, amount in _requests_milli(container).items():
            running[name] = running.get(name, 0) + amount
    return {name: max(running.get(name, 0), peak.get(name, 0)) for name in running | peak}


def _requests_milli(container: Json) -> dict[str, int]:
    requests = container["resources"].get("requests") or {}
    return {name: quantity.exact_milli(amount) for name, amount in requests.items()}


def quality_of_service(spec: Json) -> str:
    """Return the QoS class of a pod, from its requests and limits."""
    level = spec.get("resources")
    asked = [level] if level else [container["resources"] for container in containers(spec)]
    requests = _compute_sums(each.get("requests") for each in asked)
    limits = _compute_sums(each.get("limits") for each in asked)
    if not requests and not limits:
        return "BestEffort"
    limited = all(_positive(each.get("limits")).keys() == set(_COMPUTE) for each in asked)
    return "Guaranteed" if limited and requests == limits else "Burstable"


def _compute_sums(lists: Iterable[Json | None]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for amounts in lists:
        for name, milli in _positive(amounts).items():
            sums[name] = sums.get(name, 0) + milli
    return sums


def _positive(amounts: Json | None) -> dict[str, int]:
    milli = {name: quantity.exact_milli((amounts or {}).get(name, "0")) for name in _COMPUTE}
    return {name: amount for name, amount in milli.items() if amount > 0}
