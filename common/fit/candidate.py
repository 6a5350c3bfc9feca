# SPDX-License-Identifier: Apache-2.0
"""The pod whose fit is judged: one that exists, or one that a controller will create.

What a controller creates passes through the API server, which fills in what a template
leaves open. The built-in part of that is done here: the priority of the class, and the
grace that every pod gets on nodes that fail (plugin/pkg/admission/priority and
defaulttolerationseconds in v1.36). Webhooks and limit ranges cannot be foreseen from a
template, only from the pod that came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from common.api.contract import GUIDED_BY
from common.api.objects import Effect, Taint, Toleration
from common.cache.snapshot import Snapshot
from common.cluster.autoscalers import VpaRecord, recommended_requests
from common.cluster.interning import EMPTY
from common.cluster.records import UNBOUND, NodeName, Owner, PodRecord, PodUid
from common.cluster.resources import Resources
from common.cluster.shapes import PodShape
from common.cluster.storage import PriorityClassRecord
from common.cluster.tolerations import tolerated
from common.cluster.workloads import WorkloadRecord

NO_UID: Final = PodUid("")

_REVISION: Final = "controller-revision-hash"
_FAILING: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_GRACE_S: Final = 300


class Placed(Protocol):
    """A pod that takes room on a node: a record, or a candidate that has arrived."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> PodUid: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def shape(self) -> PodShape: ...
    @property
    def terminating(self) -> bool: ...


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that looks for a node."""

    namespace: str
    name: str
    shape: PodShape
    labels: Mapping[str, str] = EMPTY
    uid: PodUid = NO_UID
    owner: Owner | None = None
    node_name: NodeName = UNBOUND
    """The one node that its spec asks for, past the scheduler."""
    terminating: bool = False

    @classmethod
    def of(cls, pod: PodRecord) -> Candidate:
        """Return a pod as it is, wherever it runs now."""
        return cls(
            namespace=pod.namespace,
            name=pod.name,
            shape=pod.shape,
            labels=pod.labels,
            uid=pod.uid,
            owner=pod.owner,
        )

    @classmethod
    def next_of(cls, workload: WorkloadRecord, snapshot: Snapshot, *, name: str = "") -> Candidate:
        """Return the pod that a controller's template makes."""
        return cls(
            namespace=workload.namespace,
            name=name or f"{workload.name}-?",
            shape=_admitted(workload.template, snapshot),
            labels=workload.template_labels,
            owner=Owner("", workload.kind, workload.name, workload.uid),
        )


def replacement(pod: PodRecord, snapshot: Snapshot) -> Candidate:
    """Return the pod that comes after this one: what its controller will create.

    Of the same revision, the pod itself tells best what admission makes of the template;
    but it may have been resized in place, so it is judged by the larger requests of both.
    """
    controller = snapshot.controller(pod)
    if controller is None:
        return _successor(Candidate.of(pod), pod)
    fresh = Candidate.next_of(controller, snapshot, name=_name_after(pod, controller))
    if GUIDED_BY in pod.annotations:
        pod = _unguided(pod, fresh)
    vpa = snapshot.vpa_of(pod)
    if vpa is not None:
        return _recommended(fresh, pod, vpa, same=_same_revision(pod, controller))
    if not _same_revision(pod, controller):
        return _with_claims(fresh, pod)
    shape = msgspec.structs.replace(
        pod.shape,
        requests=_larger(pod.shape.requests, fresh.shape.requests),
        scored_cpu_milli=max(pod.shape.scored_cpu_milli, fresh.shape.scored_cpu_milli),
        scored_mem_bytes=max(pod.shape.scored_mem_bytes, fresh.shape.scored_mem_bytes),
    )
    return msgspec.structs.replace(fresh, shape=shape, labels=pod.labels, owner=pod.owner)


def _unguided(pod: PodRecord, fresh: Candidate) -> PodRecord:
    """Return a pod without the node that it was sent to: the next one may go anywhere again."""
    shape = msgspec.structs.replace(
        pod.shape,
        required_nodes=fresh.shape.required_nodes,
        preferred_nodes=fresh.shape.preferred_nodes,
    )
    return msgspec.structs.replace(pod, shape=shape)


def _recommended(fresh: Candidate, pod: PodRecord, vpa: VpaRecord, *, same: bool) -> Candidate:
    """Return the pod with the requests that its VPA recommends, as admission will set them."""
    template = fresh.shape
    asked = recommended_requests(vpa, template.requests, template.asked_by_container)
    shape = msgspec.structs.replace(
        pod.shape if same else template,
        requests=asked,
        scored_cpu_milli=asked.cpu_milli or template.scored_cpu_milli,
        scored_mem_bytes=asked.mem_bytes or template.scored_mem_bytes,
    )
    labels = pod.labels if same else fresh.labels
    return _with_claims(msgspec.structs.replace(fresh, shape=shape, labels=labels), pod)


def _successor(candidate: Candidate, pod: PodRecord) -> Candidate:
    return msgspec.structs.replace(candidate, uid=NO_UID, name=f"{pod.name}-?")


def _name_after(pod: PodRecord, controller: WorkloadRecord) -> str:
    return pod.name if controller.kind == "StatefulSet" else ""


def _same_revision(pod: PodRecord, controller: WorkloadRecord) -> bool:
    if controller.kind != "StatefulSet":
        return True
    ordinal = pod.name.rpartition("-")[2]
    held_back = ordinal.isdecimal() and int(ordinal) < controller.partition
    expected = controller.current_revision if held_back else controller.update_revision
    return not expected or pod.labels.get(_REVISION) == expected


def _with_claims(fresh: Candidate, pod: PodRecord) -> Candidate:
    """Keep the claims that a StatefulSet makes for its pods beside their template."""
    claims = tuple(sorted({*fresh.shape.claims, *pod.shape.claims}))
    return msgspec.structs.replace(
        fresh, shape=msgspec.structs.replace(fresh.shape, claims=claims), owner=pod.owner
    )


def _larger(one: Resources, other: Resources) -> Resources:
    scalars = dict(one.scalars)
    for name, amount in other.scalars:
        scalars[name] = max(amount, scalars.get(name, 0))
    return Resources(
        max(one.cpu_milli, other.cpu_milli),
        max(one.mem_bytes, other.mem_bytes),
        max(one.ephemeral_bytes, other.ephemeral_bytes),
        tuple(sorted(scalars.items())),
    )


def _admitted(template: PodShape, snapshot: Snapshot) -> PodShape:
    graces = tuple(
        Toleration(key, "Exists", effect=Effect.NO_EXECUTE, toleration_seconds=_GRACE_S)
        for key in _FAILING
        if not tolerated(Taint(key, effect=Effect.NO_EXECUTE), template.tolerations)
    )
    return msgspec.structs.replace(
        template,
        priority=template.priority or _priority(template.priority_class, snapshot),
        tolerations=(*template.tolerations, *graces),
    )


def _priority(name: str, snapshot: Snapshot) -> int:
    classes = snapshot.priority_classes
    if name:
        return classes[name].value if name in classes else _SYSTEM.get(name, 0)
    return _default_priority(_Same(classes))


class _Same:
    """A map as a key: equal to itself only, so that it need not be read to be found again."""

    __slots__ = ("classes",)

    def __init__(self, classes: Mapping[str, PriorityClassRecord]) -> None:
        self.classes = classes

    def __hash__(self) -> int:
        return id(self.classes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.classes is self.classes


@lru_cache(maxsize=2)
def _default_priority(key: _Same) -> int:
    # Asked for every template, and the map of a snapshot is slow to walk.
    return next((c.value for c in key.classes.values() if c.is_default), 0)


_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
