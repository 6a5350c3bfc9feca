# SPDX-License-Identifier: Apache-2.0
"""VerticalPodAutoscalers: which requests the next pod of a workload will have.

The admission controller of the VPA sets the requests of every new pod to its recommendation,
unless the update mode is `Off` (kubernetes/autoscaler, vertical-pod-autoscaler/pkg/
admission-controller/resource/pod/patch/resource_updates.go). So the pod that a controller's
template makes is not the pod that will look for a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from common.api.objects import VerticalPodAutoscaler, VpaContainerPolicy
from common.cluster.interning import Interner
from common.cluster.resources import CPU, MEMORY, Resources, amounts

OFF: Final = "Off"
_EVERY: Final = "*"


class VpaRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a VPA recommends for the containers of a workload."""

    namespace: str
    name: str
    target_kind: str
    target_name: str
    acts: bool
    """Its recommendation is applied to new pods."""
    recommended: tuple[tuple[str, Resources, bool, bool], ...] = ()
    """By container: what it should request, and whether that holds for CPU and for memory."""

    @property
    def target(self) -> str:
        return target_key(self.namespace, self.target_kind, self.target_name)


def target_key(namespace: str, kind: str, name: str) -> str:
    """Return the key under which the VPA of a workload is found."""
    return f"{namespace}/{kind}/{name}"


def vpa_record(wire: VerticalPodAutoscaler, shared: Interner) -> VpaRecord:
    """Parse a VPA; raises ValueError when a quantity is nonsense."""
    spec, found = wire.spec, wire.status.recommendation
    mode = spec.update_policy.update_mode if spec.update_policy is not None else ""
    policies = spec.resource_policy.container_policies if spec.resource_policy is not None else ()
    by_name = {policy.container_name: policy for policy in policies or ()}
    target = spec.target_ref
    return VpaRecord(
        namespace=shared.value(wire.metadata.namespace),
        name=wire.metadata.name,
        target_kind=shared.value(target.kind) if target is not None else "",
        target_name=target.name if target is not None else "",
        acts=mode != OFF,
        recommended=tuple(
            (each.container_name, Resources.from_amounts(amounts(each.target)), *controlled)
            for each in (found.container_recommendations if found is not None else None) or ()
            if any(controlled := _controlled(by_name, each.container_name))
        ),
    )


def _controlled(policies: Mapping[str, VpaContainerPolicy], name: str) -> tuple[bool, bool]:
    """Return whether CPU and memory of a container follow the recommendation."""
    policy = policies.get(name) or policies.get(_EVERY)
    if policy is None:
        return True, True
    named = policy.controlled_resources
    on = policy.mode != OFF
    return on and (named is None or CPU in named), on and (named is None or MEMORY in named)


def recommended_requests(
    vpa: VpaRecord, template: Resources, containers: Iterable[tuple[str, int, int]]
) -> Resources:
    """Return what the next pod will request; `containers` is what the template asks for each."""
    cpu_milli, mem_bytes = template.cpu_milli, template.mem_bytes
    asked = {name: (cpu, memory) for name, cpu, memory in containers}
    for name, wanted, of_cpu, of_memory in vpa.recommended:
        if name not in asked:
            continue
        before_cpu, before_mem = asked[name]
        cpu_milli += wanted.cpu_milli - before_cpu if of_cpu and wanted.cpu_milli else 0
        mem_bytes += wanted.mem_bytes - before_mem if of_memory and wanted.mem_bytes else 0
    return msgspec.structs.replace(
        template, cpu_milli=max(0, cpu_milli), mem_bytes=max(0, mem_bytes)
    )
