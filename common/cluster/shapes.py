# SPDX-License-Identifier: Apache-2.0
"""What decides where a pod may run: the part of it that its template determines.

Equal templates give equal shapes, and equal shapes are one object in memory. Whatever
differs between replicas of one template (names, the node, the generated name of the
token volume) stays out of here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from common.api.objects import (
    Affinity,
    Container,
    DiskVolume,
    NodeAffinity,
    ObjectMeta,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)
from common.cluster.resources import (
    Resources,
    amounts,
    pod_limits,
    pod_requests,
    scored_requests,
)
from common.cluster.selectors import (
    NodeSelector,
    Operator,
    Requirement,
    Selector,
    from_label_selector,
)

MAX_GRACE_S: Final = 365 * 24 * 3600
"""A year: the API server takes any number of 64 bits, of which no calendar has the end."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """Base of the immutable, hashable parts of a shape."""


class HostPort(Part, frozen=True):
    ip: str
    protocol: str
    port: int


class PodTerm(Part, frozen=True):
    """A pod affinity or anti-affinity term; namespaces are resolved."""

    selector: Selector
    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether it is about pods like this, by the namespaces that it names."""
        return namespace in self.namespaces and self.selector.matches(labels)


class WeightedTerm(Part, frozen=True):
    weight: int
    term: PodTerm


class WeightedNodeTerm(Part, frozen=True):
    weight: int
    term: NodeSelector


class Spread(Part, frozen=True):
    """A topology spread constraint."""

    max_skew: int
    topology_key: str
    hard: bool
    selector: Selector
    min_domains: int
    honor_affinity: bool
    honor_taints: bool
    match_label_keys: tuple[str, ...]


class Disk(Part, frozen=True):
    """An in-tree disk that the scheduler does not let two pods share."""

    kind: str
    ids: tuple[str, ...]
    pool: str
    image: str
    read_only: bool


class PodShape(Part, frozen=True, kw_only=True):
    """Everything about a pod that its template determines and that matters to placing it."""

    requests: Resources
    limits: Resources
    scored_cpu_milli: int
    scored_mem_bytes: int
    scheduler_name: str
    priority: int
    priority_class: str
    preempts: bool
    restart_policy: str
    grace_s: int
    hostname: str
    host_network: bool
    containers: int
    images: tuple[str, ...]
    host_ports: tuple[HostPort, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    required_nodes: NodeSelector | None = None
    preferred_nodes: tuple[WeightedNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[WeightedTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    claims: tuple[str, ...] = ()
    ephemeral_claims: tuple[str, ...] = ()
    """Volumes whose claim is named `<pod>-<volume>`."""
    inline_drivers: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()
    local_storage: bool = False
    """Has data on the node: hostPath, or emptyDir outside memory."""
    asked_by_container: tuple[tuple[str, int, int], ...] = ()
    """Of a template, what each container requests: name, CPU in thousandths, memory in bytes."""
    host_path: bool = False
    """Reads or writes files of its node, which no other node has."""
    gates: tuple[str, ...] = ()
    resource_claims: int = 0
    pod_group: str = ""
    """The PodGroup with which the scheduler places it, by its spec."""
    features: frozenset[str] = frozenset()
    """What the node's kubelet must declare to be able to do."""


def shape_of(meta: ObjectMeta, spec: PodSpec, status: PodStatus | None = None) -> PodShape:
    """Return the shape of a pod, or without a status, of the pod that a template would make."""
    affinity = spec.affinity or Affinity()
    nodes = affinity.node_affinity or NodeAffinity()
    cpu, memory = scored_requests(spec, status)
    volumes = spec.volumes or ()
    written = _Written(meta, merged=status is not None)
    return PodShape(
        requests=pod_requests(spec, status),
        limits=pod_limits(spec),
        scored_cpu_milli=cpu,
        scored_mem_bytes=memory,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority or 0,
        priority_class=spec.priority_class_name,
        preempts=spec.preemption_policy != "Never",
        restart_policy=spec.restart_policy,
        grace_s=_grace_s(spec),
        hostname=spec.hostname,
        host_network=spec.host_network,
        containers=len(spec.containers) + len(spec.init_containers or ()),
        images=_images(spec),
        host_ports=_host_ports(spec),
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        required_nodes=NodeSelector.from_wire(nodes.required) if nodes.required else None,
        preferred_nodes=tuple(
            WeightedNodeTerm(p.weight, NodeSelector.from_term(p.preference))
            for p in nodes.preferred or ()
        ),
        tolerations=spec.tolerations or (),
        affinity=written.required(affinity.pod_affinity),
        anti_affinity=written.required(affinity.pod_anti_affinity),
        preferred_affinity=written.preferred(affinity.pod_affinity),
        preferred_anti_affinity=written.preferred(affinity.pod_anti_affinity),
        spread=tuple(map(_spread, spec.topology_spread_constraints or ())),
        claims=_claims(volumes),
        ephemeral_claims=tuple(sorted(v.name for v in volumes if v.ephemeral is not None)),
        inline_drivers=tuple(sorted(v.csi.driver for v in volumes if v.csi is not None)),
        disks=tuple(disk for volume in volumes for disk in _disks(volume)),
        local_storage=any(map(_is_local, volumes)),
        asked_by_container=_asked_by_container(spec) if status is None else (),
        host_path=any(volume.host_path is not None for volume in volumes),
        gates=tuple(g.name for g in spec.scheduling_gates or ()),
        resource_claims=len(spec.resource_claims or ()),
        pod_group=_pod_group(spec),
        features=_features(spec),
    )


def _asked_by_container(spec: PodSpec) -> tuple[tuple[str, int, int], ...]:
    asked = ((c.name, amounts(c.resources.requests)) for c in spec.containers)
    found = ((name, Resources.from_amounts(amount)) for name, amount in asked)
    return tuple((name, each.cpu_milli, each.mem_bytes) for name, each in found)


class _Written:
    """Compiles pod affinity as it stands in a pod or in a template."""

    def __init__(self, meta: ObjectMeta, *, merged: bool) -> None:
        self._namespace = meta.namespace
        # The API server merges label keys into the selectors when a pod is created
        # (pkg/registry/core/pod/strategy.go); in a template that is still to come.
        self._labels = {} if merged else meta.labels or {}

    def required(self, wire: PodAffinity | None) -> tuple[PodTerm, ...]:
        terms = wire.required if wire is not None else None
        return tuple(map(self._term, terms or ()))

    def preferred(self, wire: PodAffinity | None) -> tuple[WeightedTerm, ...]:
        terms = wire.preferred if wire is not None else None
        return tuple(WeightedTerm(t.weight, self._term(t.pod_affinity_term)) for t in terms or ())

    def _term(self, wire: PodAffinityTerm) -> PodTerm:
        # No namespaces and no selector mean the pod's own namespace
        # (getNamespacesFromPodAffinityTerm in staging kube-scheduler/framework/types.go).
        names = frozenset(wire.namespaces or ())
        if not names and wire.namespace_selector is None:
            names = frozenset({self._namespace})
        keys = (
            *self._demands(Operator.IN, wire.match_label_keys),
            *self._demands(Operator.NOT_IN, wire.mismatch_label_keys),
        )
        selector = from_label_selector(wire.label_selector)
        return PodTerm(
            selector.plus(*keys) if keys else selector,
            wire.topology_key,
            names,
            from_label_selector(wire.namespace_selector),
        )

    def _demands(self, operator: Operator, keys: tuple[str, ...] | None) -> list[Requirement]:
        labels = self._labels
        return [Requirement(k, operator, frozenset({labels[k]})) for k in keys or () if k in labels]


def _spread(wire: TopologySpreadConstraint) -> Spread:
    return Spread(
        wire.max_skew,
        wire.topology_key,
        wire.when_unsatisfiable == "DoNotSchedule",
        from_label_selector(wire.label_selector),
        wire.min_domains or 1,
        (wire.node_affinity_policy or "Honor") == "Honor",
        (wire.node_taints_policy or "Ignore") == "Honor",
        wire.match_label_keys or (),
    )


def _images(spec: PodSpec) -> tuple[str, ...]:
    containers = (*(spec.init_containers or ()), *spec.containers)
    mounted = (v.image.reference for v in spec.volumes or () if v.image is not None)
    return (*(c.image for c in containers), *mounted)


def _features(spec: PodSpec) -> frozenset[str]:
    """Return what component-helpers' nodedeclaredfeatures infers for scheduling a pod."""
    found = set()
    containers = (*(spec.init_containers or ()), *spec.containers)
    rules = (rule for c in containers for rule in c.restart_policy_rules or ())
    if any(rule.action == "RestartAllContainers" for rule in rules):
        found.add("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        found.add("UserNamespacesHostNetworkSupport")
    return frozenset(found)


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the ports on the node; ordinary init containers hold none (nodeports plugin)."""
    holders: list[Container] = [
        *spec.containers,
        *(c for c in spec.init_containers or () if c.restart_policy == "Always"),
    ]
    ports = {
        HostPort(p.host_ip or "0.0.0.0", p.protocol or "TCP", p.host_port)
        for c in holders
        for p in c.ports or ()
        if p.host_port > 0
    }
    return tuple(sorted(ports, key=lambda p: (p.port, p.protocol, p.ip)))


def _claims(volumes: list[Volume] | tuple[()]) -> tuple[str, ...]:
    used = (v.persistent_volume_claim for v in volumes)
    # A claim that is mounted twice stands here twice: the scheduler looks for two volumes.
    return tuple(sorted(c.claim_name for c in used if c is not None))


def _disks(volume: Volume) -> list[Disk]:
    kinds: tuple[tuple[str, DiskVolume | None], ...] = (
        ("gce", volume.gce_persistent_disk),
        ("aws", volume.aws_elastic_block_store),
        ("iscsi", volume.iscsi),
        ("rbd", volume.rbd),
    )
    return [
        Disk(kind, _ids(disk), disk.pool, disk.image, disk.read_only)
        for kind, disk in kinds
        if disk is not None
    ]


def _ids(disk: DiskVolume) -> tuple[str, ...]:
    return disk.monitors or (disk.pd_name or disk.volume_id or disk.iqn,)


def _is_local(volume: Volume) -> bool:
    if volume.host_path is not None:
        return True
    return volume.empty_dir is not None and volume.empty_dir.medium != "Memory"


def _pod_group(spec: PodSpec) -> str:
    if spec.scheduling_group is not None:
        return spec.scheduling_group.pod_group_name
    return spec.workload_ref.pod_group if spec.workload_ref is not None else ""


def _grace_s(spec: PodSpec) -> int:
    given = spec.termination_grace_period_seconds
    return 30 if given is None else max(0, min(given, MAX_GRACE_S))
