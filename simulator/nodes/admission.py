# SPDX-License-Identifier: Apache-2.0
"""Whether a kubelet admits the pod that was assigned to it.

The kubelet checks resources, labels and NoExecute taints again, because a pod may be assigned
without a scheduler, or two schedulers may race. Messages as in
pkg/kubelet/lifecycle/predicate.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from common.api.objects import Effect
from common.cluster.records import NodeRecord, PodRecord
from common.cluster.resources import Resources
from common.cluster.tolerations import tolerated


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a kubelet rejects a pod."""

    reason: str
    message: str


def rejection(pod: PodRecord, node: NodeRecord, others: Iterable[PodRecord]) -> Rejection | None:
    """Return why the node cannot run a pod beside these others."""
    there = list(others)
    if len(there) + 1 > node.max_pods:
        return _out_of("pods", 1, len(there), node.max_pods)
    used = _sum(there)
    for name, asked in _amounts(pod.requests).items():
        whole, held = _amounts(node.allocatable).get(name, 0), used.get(name, 0)
        if asked and asked > whole - held:
            return _out_of(name, asked, held, whole)
    return _unwanted(pod, node)


def _unwanted(pod: PodRecord, node: NodeRecord) -> Rejection | None:
    shape = pod.shape
    selected = dict(shape.node_selector).items() <= dict(node.labels).items()
    required = shape.required_nodes
    if not selected or (required is not None and not required.matches(node.labels, node.name)):
        return Rejection("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: ")
    evicting = [taint for taint in node.taints if taint.effect == Effect.NO_EXECUTE]
    if any(not tolerated(taint, shape.tolerations) for taint in evicting):
        message = "Pod was rejected: Predicate TaintToleration failed: "
        return Rejection("TaintToleration", message)
    return None


def _out_of(name: str, asked: int, used: int, whole: int) -> Rejection:
    message = f"Node didn't have enough resource: {name}, requested: {asked}, used: {used}, "
    return Rejection(f"OutOf{name}", f"Pod was rejected: {message}capacity: {whole}")


def _amounts(resources: Resources) -> dict[str, int]:
    plain = {"cpu": resources.cpu_milli, "memory": resources.mem_bytes}
    return {**plain, "ephemeral-storage": resources.ephemeral_bytes, **dict(resources.scalars)}


def _sum(pods: Iterable[PodRecord]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in _amounts(pod.requests).items():
            total[name] = total.get(name, 0) + amount
    return total
