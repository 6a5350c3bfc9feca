# SPDX-License-Identifier: Apache-2.0
"""Nodes of kwok: manifests, bulk creation, and waiting until they are schedulable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.api import Api, Json
from controlplane.errors import ConfigError

CPU = "8"
MEMORY = "32Gi"
PODS = 110
ZONE = "topology.kubernetes.io/zone"
NOT_READY = "node.kubernetes.io/not-ready"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The resources, labels and taints of a fake node."""

    cpu: str = CPU
    memory: str = MEMORY
    pods: int = PODS
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


def milli(text: str) -> int:
    """Read a quantity of CPU: cores, or thousandths of one."""
    try:
        return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)
    except ValueError:
        raise ConfigError(f"{text!r} is not a quantity of CPU, for example 500m or 2") from None


def bytes_of(text: str) -> int:
    """Read a quantity of memory in Mi or Gi."""
    unit = {"Mi": 1 << 20, "Gi": 1 << 30}.get(text[-2:])
    if unit is None or not text[:-2].isdecimal():
        raise ConfigError(f"{text!r} is not a quantity of memory, for example 512Mi or 2Gi")
    return int(text[:-2]) * unit


def manifest(name: str, spec: NodeSpec, *, zone: str | None = None) -> Json:
    """Return the Node object for kwok; metrics-server finds its usage by the annotation."""
    resources = {"cpu": spec.cpu, "memory": spec.memory, "pods": str(spec.pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": _labels(name, zone) | dict(spec.labels),
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{name}/metrics/resource",
            },
        },
        "spec": {"taints": [dict(taint) for taint in spec.taints]},
        "status": {"capacity": resources, "allocatable": resources},
    }


def manifests(
    count: int, spec: NodeSpec, *, zones: int = 0, prefix: str = "node-", first: int = 1
) -> list[Json]:
    """Return `count` nodes, assigned to the zones in turn."""
    width = len(str(first + count - 1))
    return [
        manifest(
            f"{prefix}{first + index:0{width}}",
            spec,
            zone=f"zone-{index % zones + 1}" if zones else None,
        )
        for index in range(count)
    ]


def unready(api: Api, names: Iterable[str], *, untainted: bool = True) -> list[str]:
    """Return the nodes that are not schedulable yet.

    kwok makes a node Ready, but the scheduler does not use it until the controller manager has
    removed the taint that admission added.
    """
    found = api.get("/api/v1/nodes", resourceVersion="0")["items"]
    ready = {node["metadata"]["name"] for node in found if _takes_pods(node, untainted)}
    return [name for name in names if name not in ready]


class Waiting:
    """Checks with few requests whether nodes are schedulable.

    A list of a thousand nodes keeps the API server busy for half a second, which delays the
    nodes. So all are listed only when the last node that was not schedulable is; until then
    only that node is checked.
    """

    def __init__(self, api: Api, names: Sequence[str], *, untainted: bool = True) -> None:
        self._api = api
        self._missing = list(names)
        self._untainted = untainted

    def over(self) -> bool:
        """Return whether all nodes are schedulable now."""
        if self._missing and self._takes_pods(self._missing[-1]):
            self._missing = unready(self._api, self._missing, untainted=self._untainted)
        return not self._missing

    def _takes_pods(self, name: str) -> bool:
        return _takes_pods(self._api.get(f"/api/v1/nodes/{name}"), self._untainted)


def _labels(name: str, zone: str | None) -> dict[str, str]:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        # As a kubelet sets them; the controller manager would add them, a request per node
        # (reconcileNodeLabels in pkg/controller/nodelifecycle).
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
    }
    return labels | {ZONE: zone} if zone else labels


def _takes_pods(node: Json, untainted: bool) -> bool:
    return is_ready(node) and not (untainted and _is_tainted(node))


def is_ready(node: Json) -> bool:
    """Return whether a kubelet says that its node is Ready."""
    conditions = node["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _is_tainted(node: Json) -> bool:
    return any(taint["key"] == NOT_READY for taint in node["spec"].get("taints", []))
