# SPDX-License-Identifier: Apache-2.0
"""How much a pod asks for, counted as kube-scheduler counts it.

The rules are those of component-helpers/resource/helpers.go in v1.36, with the feature
gates at their defaults: in-place resize counts the largest of what is wanted, allocated
and actuated; sidecars add up; ordinary init containers set a minimum; pod-level requests
replace the containers' sum; overhead comes on top. Sums are taken in thousandths and
rounded up once, at the end, as the scheduler does with exact quantities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from common.api.objects import Condition, Container, ContainerStatus, PodSpec, PodStatus
from common.cluster import quantities as quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL: Final = "ephemeral-storage"
PODS: Final = "pods"

# What the scheduler's scores assume of a container that asks for nothing
# (pkg/scheduler/util/pod_resources.go).
DEFAULT_CPU_MILLI: Final = 100
DEFAULT_MEM_BYTES: Final = 200 * 1024 * 1024

MAX_ALLOCATABLE: Final = 1 << 50
"""More than any node has: a pebibyte, or a thousand million million thousandths of a CPU.

Quantities may be as large as their author likes. Sums and differences of many must stay
within the 64 bits of the arrays that they are compared in, so each is cut here.
"""
MAX_REQUEST: Final = 2 * MAX_ALLOCATABLE
"""What is cut to this fits nowhere: no node has so much to offer."""

Amounts = dict[str, int]
"""Resource name → thousandths of its unit."""


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Amounts of every kind of resource; scalars are sorted by name."""

    cpu_milli: int = 0
    mem_bytes: int = 0
    ephemeral_bytes: int = 0
    scalars: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_amounts(cls, amounts: Mapping[str, int], limit: int = MAX_REQUEST) -> Resources:
        """Round thousandths up to the units that the scheduler compares, up to a limit."""
        return cls(
            _cut(amounts.get(CPU, 0), limit),
            _cut(_whole(amounts.get(MEMORY, 0)), limit),
            _cut(_whole(amounts.get(EPHEMERAL, 0)), limit),
            tuple(sorted((n, _cut(_whole(a), limit)) for n, a in amounts.items() if is_scalar(n))),
        )


NOTHING: Final = Resources()


def amount_of(resources: Resources, name: str) -> int:
    """Return how much there is of a resource by its name in a manifest; CPU in thousandths."""
    plain = {
        CPU: resources.cpu_milli,
        MEMORY: resources.mem_bytes,
        EPHEMERAL: resources.ephemeral_bytes,
    }
    return plain.get(name, 0) if name in plain else dict(resources.scalars).get(name, 0)


def is_scalar(name: str) -> bool:
    """Tell whether the scheduler counts this resource beside cpu, memory and storage.

    Extended resources, huge pages, attachable volumes and prefixed native resources; see
    IsScalarResourceName in pkg/scheduler/util/utils.go.
    """
    if name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name:
        return True
    return "/" in name and not name.startswith("requests.")


def amounts(wire: Mapping[str, str | float] | None) -> Amounts:
    """Parse a resource list into thousandths."""
    return {name: quantity.exact_milli(text) for name, text in wire.items()} if wire else {}


def pod_requests(spec: PodSpec, status: PodStatus | None = None) -> Resources:
    """Return what the scheduler charges a node for this pod."""
    return Resources.from_amounts(_request_amounts(spec, status, {}))


def scored_requests(spec: PodSpec, status: PodStatus | None = None) -> tuple[int, int]:
    """Return (cpu_milli, mem_bytes) with the scores' assumption for containers that ask nothing."""
    assumed = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEM_BYTES * 1000}
    if _has_pod_level(spec):
        plain = _request_amounts(spec, status, {})
        assumed = {name: amount for name, amount in assumed.items() if name not in plain}
    found = _request_amounts(spec, status, assumed)
    cpu, memory = found.get(CPU, 0), _whole(found.get(MEMORY, 0))
    return _cut(cpu, MAX_REQUEST), _cut(memory, MAX_REQUEST)


def pod_limits(spec: PodSpec) -> Resources:
    """Return the pod's limits; a resource that some container leaves open has none."""
    running = [*spec.containers, *(c for c in spec.init_containers or () if _is_sidecar(c))]
    parsed = [amounts(c.resources.limits) for c in running]
    common = set.intersection(*(set(p) for p in parsed)) if parsed else set()
    total = {name: sum(p[name] for p in parsed) for name in common}
    if spec.resources is not None:
        total.update(_pod_level(amounts(spec.resources.limits)))
    return Resources.from_amounts(total)


def _request_amounts(spec: PodSpec, status: PodStatus | None, assumed: Amounts) -> Amounts:
    total = _container_amounts(spec, status, assumed)
    if spec.resources is not None and _has_pod_level(spec):
        wanted = _pod_level(amounts(spec.resources.requests))
        if status is not None and status.resources is not None:
            states = (status.resources.requests, status.allocated_resources)
            effective = _effective(wanted, states, infeasible=_resize_infeasible(status))
            wanted = {name: effective.get(name, 0) for name in wanted}
        total.update(wanted)
    _add(total, amounts(spec.overhead))
    return total


def _container_amounts(spec: PodSpec, status: PodStatus | None, assumed: Amounts) -> Amounts:
    reported = _statuses(status)
    infeasible = status is not None and _resize_infeasible(status)
    total: Amounts = {}
    for container in spec.containers:
        _add(total, _of_container(container, reported, assumed, infeasible=infeasible))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers or ():
        if _is_sidecar(container):
            asked = _of_container(container, reported, assumed, infeasible=infeasible)
            _add(total, asked)
            _add(sidecars, asked)
            _maximum(peak, sidecars)
        else:
            # While it runs, the sidecars started before it run too.
            during = _of_container(container, {}, assumed, infeasible=False)
            _add(during, sidecars)
            _maximum(peak, during)
    _maximum(total, peak)
    return total


def _of_container(
    container: Container,
    reported: Mapping[str, ContainerStatus],
    assumed: Amounts,
    *,
    infeasible: bool,
) -> Amounts:
    asked = amounts(container.resources.requests)
    seen = reported.get(container.name)
    if seen is not None and seen.resources is not None:
        states = (seen.resources.requests, seen.allocated_resources)
        asked = _effective(asked, states, infeasible=infeasible)
    return {**assumed, **asked} if assumed else asked


def _effective(
    wanted: Amounts, states: Iterable[Mapping[str, str | float] | None], *, infeasible: bool
) -> Amounts:
    """Return the largest of wanted, actuated and allocated; an infeasible wish does not count."""
    largest: Amounts = {} if infeasible else dict(wanted)
    for state in states:
        _maximum(largest, amounts(state))
    return largest


def _statuses(status: PodStatus | None) -> dict[str, ContainerStatus]:
    if status is None:
        return {}
    both = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return {seen.name: seen for seen in both if seen.resources is not None}


def _resize_infeasible(status: PodStatus) -> bool:
    def pending(condition: Condition) -> bool:
        return condition.type == "PodResizePending"

    found = next(filter(pending, status.conditions or ()), None)
    return found is not None and found.reason == "Infeasible"


def _has_pod_level(spec: PodSpec) -> bool:
    requests = spec.resources.requests if spec.resources is not None else None
    return any(_is_pod_level(name) for name in requests or ())


def _pod_level(found: Amounts) -> Amounts:
    return {name: amount for name, amount in found.items() if _is_pod_level(name)}


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _maximum(total: Amounts, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _whole(thousandths: int) -> int:
    return -(-thousandths // 1000)


def _cut(amount: int, limit: int) -> int:
    return max(-limit, min(amount, limit))
