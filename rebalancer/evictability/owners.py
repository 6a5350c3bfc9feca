# SPDX-License-Identifier: Apache-2.0
"""Gates about the owner: whether it replaces the pod, and whether the replacement would start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from common.api.contract import GROUP_ANNOTATIONS, GROUP_LABELS, group_system
from common.cache.replacements import key_of_pod
from common.cluster.records import PodRecord
from common.cluster.shapes import PodShape
from common.config import BarePods, Jobs
from rebalancer.evictability.context import JOB, READ_OWNERS, Context
from rebalancer.refusals import Reason, Refusal

MAX_TERMS: Final = 100
"""More than people write, and few enough not to delay a plan."""
_HAVE_GATES_OF_THEIR_OWN: Final = frozenset({"DaemonSet", "Node"})
_BARE: Final = Reason.BARE_POD.refusal()
_LOOSELY_OWNED: Final = Reason.OWNER_WITHOUT_CONTROL.refusal()


def replaceable_if_bare(pod: PodRecord, context: Context) -> Refusal | None:
    if pod.owner is not None:
        return None
    if pod.owned:
        return _LOOSELY_OWNED
    if context.config.bare_pods is not BarePods.REPLACE:
        return _BARE
    obstacles = ", ".join(_obstacles(pod.shape))
    return Reason.BARE_POD_NOT_COPYABLE.refusal(obstacles=obstacles) if obstacles else None


def _obstacles(shape: PodShape) -> Iterator[str]:
    """Yield what two pods cannot have at the same time, or what shows that the pod is to end."""
    if shape.restart_policy != "Always":
        yield f"its restartPolicy is {shape.restart_policy}"
    if shape.claims or shape.ephemeral_claims:
        yield "it has a volume claim"
    if shape.host_ports:
        yield "it has a host port"
    if shape.hostname:
        yield "its hostname is fixed"


def job_tolerates_disruption(pod: PodRecord, context: Context) -> Refusal | None:
    owner = context.owner_status(pod)
    if owner is None or owner.kind != JOB:
        return None
    if context.config.jobs is not Jobs.MOVE:
        return Reason.JOB_POD.refusal(job=owner.reference.name)
    if owner.controller is None or owner.controller.ignores_disruption:
        return None
    return Reason.JOB_COUNTS_DISRUPTIONS.refusal(job=owner.reference.name)


def owner_replaces_its_pods(pod: PodRecord, context: Context) -> Refusal | None:
    owner = context.owner_status(pod)
    if owner is None or owner.replaces or owner.reference.kind in _HAVE_GATES_OF_THEIR_OWN:
        return None
    return Reason.CUSTOM_OWNER.refusal(owner=f"{owner.kind} {owner.reference.name}")


def owner_chain_ends(pod: PodRecord, context: Context) -> Refusal | None:
    """Owners that own each other have no workload at the top whose state could be judged."""
    owner = context.owner_status(pod)
    if owner is None or not context.snapshot.owners_loop(pod):
        return None
    return Reason.OWNER_LOOP.refusal(owner=f"{owner.reference.kind} {owner.reference.name}")


def replacement_can_be_steered(pod: PodRecord, context: Context) -> Refusal | None:
    """Binds load moves only: without a key nothing can tell which pod to steer."""
    config, owner = context.config, context.replacing_owner(pod)
    if owner is None or not (context.for_load and config.needs_guidance):
        return None
    if key_of_pod(pod) is not None or (owner.kind == JOB and config.jobs is not Jobs.MOVE):
        return None
    return Reason.NOT_STEERABLE.refusal(owner=f"{owner.kind} {owner.reference.name}")


def owner_exists(pod: PodRecord, context: Context) -> Refusal | None:
    """Without its owner nothing would replace the pod; the watch may also just be late."""
    owner = context.owner_status(pod)
    if owner is None:
        return None
    named = f"{owner.reference.kind} {owner.reference.name}"
    if owner.controller is None and owner.reference.uid in context.snapshot.workloads:
        # The API server does not check that an ownerReference is right.
        return Reason.OWNER_MISMATCH.refusal(owner=named)
    if owner.kind not in READ_OWNERS:
        return None
    if owner.controller is None:
        return Reason.OWNER_MISSING.refusal(owner=named)
    for found in (owner.controller, owner.workload):
        if found is not None and found.deleted_s is not None:
            return Reason.OWNER_DELETED.refusal(owner=f"{found.kind} {found.name}")
    return None


def not_surplus(pod: PodRecord, context: Context) -> Refusal | None:
    """A controller with too many pods does not replace one that goes."""
    owner = context.replacing_owner(pod)
    found = owner.controller if owner is not None else None
    if found is None or found.current <= found.desired:
        return None
    named = f"{found.kind} {found.name}"
    return Reason.SURPLUS_POD.refusal(owner=named, current=found.current, desired=found.desired)


def replacement_not_gated(pod: PodRecord, context: Context) -> Refusal | None:
    owner = context.replacing_owner(pod)
    found = owner.controller if owner is not None else None
    gates = found.template.gates if found is not None else pod.shape.gates
    if not gates:
        return None
    return Reason.SCHEDULING_GATES.refusal(gates=", ".join(gates))


def not_too_many_affinity_terms(pod: PodRecord, context: Context) -> Refusal | None:
    """Every term is compared with all kinds of pods, and one object can hold thousands of them."""
    owner = context.replacing_owner(pod)
    found = owner.controller if owner is not None else None
    shapes = (pod.shape,) if found is None else (pod.shape, found.template)
    terms = max(len(s.affinity) + len(s.anti_affinity) for s in shapes)
    if terms <= MAX_TERMS:
        return None
    return Reason.TOO_MANY_TERMS.refusal(terms=terms, limit=MAX_TERMS)


def not_in_a_foreign_group(pod: PodRecord, _: Context) -> Refusal | None:
    """Another program admits and places such a group; one of its pods alone would not start."""
    if GROUP_LABELS.isdisjoint(pod.labels) and GROUP_ANNOTATIONS.isdisjoint(pod.annotations):
        return None
    keys = (GROUP_LABELS & pod.labels.keys()) | (GROUP_ANNOTATIONS & pod.annotations.keys())
    key = min(keys)
    return Reason.POD_GROUP.refusal(key=key, system=group_system(key))


def group_allows_it_to_leave(pod: PodRecord, context: Context) -> Refusal | None:
    """A gang works only as long as enough of its pods run."""
    return context.scope.pod_groups.refusal(pod) if pod.shape.pod_group else None


def in_a_pod_group(pod: PodRecord) -> bool:
    """Tell whether a pod is placed together with others."""
    if pod.shape.pod_group or not GROUP_LABELS.isdisjoint(pod.labels):
        return True
    return not GROUP_ANNOTATIONS.isdisjoint(pod.annotations)
