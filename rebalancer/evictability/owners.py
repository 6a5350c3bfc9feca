"""Gates about who replaces a pod once it is gone, and whether the replacement would start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from common.cluster.records import PodRecord
from common.cluster.replacing import key_of_pod
from common.cluster.shapes import PodShape
from common.config import BarePods, Jobs
from common.contract import GROUP_ANNOTATIONS, GROUP_LABELS
from rebalancer.evictability.context import JOB, READ_OWNERS, Context
from rebalancer.reasons import Refusal

MAX_TERMS: Final = 100
"""More than people write, and few enough not to hold up a plan."""
_HAVE_GATES_OF_THEIR_OWN: Final = frozenset({"DaemonSet", "Node"})
_BARE: Final = Refusal("BarePod", "no controller would replace it")
_LOOSELY_OWNED: Final = Refusal(
    "OwnerWithoutControl", "its owner is not marked as its controller, so nobody would replace it"
)


def replaceable_if_bare(pod: PodRecord, context: Context) -> Refusal | None:
    if pod.owner is not None:
        return None
    if pod.owned:
        return _LOOSELY_OWNED
    if context.config.bare_pods is not BarePods.REPLACE:
        return _BARE
    hindrances = ", ".join(_hindrances(pod.shape))
    return (
        Refusal("BarePodNotCopyable", f"no copy can stand in: {hindrances}") if hindrances else None
    )


def _hindrances(shape: PodShape) -> Iterator[str]:
    """Yield what two pods cannot have at the same time, or what shows that it is to end."""
    if shape.restart_policy != "Always":
        yield f"its restartPolicy is {shape.restart_policy}"
    if shape.claims or shape.ephemeral_claims:
        yield "it has a volume claim"
    if shape.host_ports:
        yield "it has a host port"
    if shape.hostname:
        yield "its hostname is fixed"


def movable_if_of_a_job(pod: PodRecord, context: Context) -> Refusal | None:
    standing = context.standing(pod)
    if standing is None or standing.kind != JOB:
        return None
    if context.config.jobs is not Jobs.MOVE:
        return Refusal("JobPod", f"Job {standing.owner.name} would start its work anew")
    if standing.controller is None or standing.controller.ignores_disruption:
        return None
    words = f"Job {standing.owner.name} has no podFailurePolicy that ignores DisruptionTarget"
    return Refusal("JobCountsDisruptions", words)


def owner_replaces_its_pods(pod: PodRecord, context: Context) -> Refusal | None:
    standing = context.standing(pod)
    if standing is None or standing.replaces or standing.owner.kind in _HAVE_GATES_OF_THEIR_OWN:
        return None
    words = f"{standing.kind} {standing.owner.name} is not known to replace its pods"
    return Refusal("CustomOwner", words)


def owners_have_an_end(pod: PodRecord, context: Context) -> Refusal | None:
    """Who owns itself has no workload at the top whose state could be judged."""
    standing = context.standing(pod)
    if standing is None or not context.snapshot.owners_loop(pod):
        return None
    named = f"{standing.owner.kind} {standing.owner.name}"
    return Refusal("OwnerLoop", f"the owners of its {named} own each other, or are too many")


def replacement_can_be_steered(pod: PodRecord, context: Context) -> Refusal | None:
    """Bind load moves only: without a key the extender does not know whom to steer."""
    config, standing = context.config, context.replacing(pod)
    if standing is None or not (context.for_load and config.require_extender):
        return None
    if key_of_pod(pod) is not None or (standing.kind == JOB and config.jobs is not Jobs.MOVE):
        return None
    words = f"nothing tells which pod of {standing.kind} {standing.owner.name} replaces which"
    return Refusal("NotSteerable", f"{words}, so its replacement would land by chance")


def owner_is_there(pod: PodRecord, context: Context) -> Refusal | None:
    """Without its owner nobody would replace the pod; the watch may also just be late."""
    standing = context.standing(pod)
    if standing is None:
        return None
    named = f"{standing.owner.kind} {standing.owner.name}"
    if standing.controller is None and standing.owner.uid in context.snapshot.workloads:
        # The API server does not check what an ownerReference says.
        words = f"it names {named} as its controller with the uid of another object"
        return Refusal("OwnerMismatch", words)
    if standing.kind not in READ_OWNERS:
        return None
    if standing.controller is None:
        return Refusal("OwnerMissing", f"its {named} is not there", for_good=False)
    for found in (standing.controller, standing.workload):
        if found is not None and found.deleted_s is not None:
            return Refusal("OwnerDeleted", f"its {found.kind} {found.name} is being deleted")
    return None


def not_surplus(pod: PodRecord, context: Context) -> Refusal | None:
    """A controller with too many pods does not replace one that goes."""
    standing = context.replacing(pod)
    found = standing.controller if standing is not None else None
    if found is None or found.current <= found.desired:
        return None
    words = f"{found.kind} {found.name} has {found.current} pods and wants {found.desired}"
    return Refusal("SurplusPod", f"{words}: it would not be replaced", for_good=False)


def replacement_not_gated(pod: PodRecord, context: Context) -> Refusal | None:
    standing = context.replacing(pod)
    found = standing.controller if standing is not None else None
    gates = found.template.gates if found is not None else pod.shape.gates
    if not gates:
        return None
    return Refusal("SchedulingGates", f"its replacement would wait for {', '.join(gates)}")


def few_enough_terms(pod: PodRecord, context: Context) -> Refusal | None:
    """Every term is compared with all kinds of pods; one object has room for thousands."""
    standing = context.replacing(pod)
    found = standing.controller if standing is not None else None
    shapes = (pod.shape,) if found is None else (pod.shape, found.template)
    terms = max(len(s.affinity) + len(s.anti_affinity) for s in shapes)
    if terms <= MAX_TERMS:
        return None
    words = f"it has {terms} terms of affinity, and at most {MAX_TERMS} are judged"
    return Refusal("TooManyTerms", words)


def not_in_a_pod_group(pod: PodRecord, _: Context) -> Refusal | None:
    words = group_words(pod)
    return Refusal("PodGroup", words) if words else None


def group_words(pod: PodRecord) -> str:
    """Return what shows that a pod is placed together with others; empty if nothing does."""
    if pod.shape.pod_group:
        return f"it belongs to PodGroup {pod.shape.pod_group}, which is placed as a whole"
    if GROUP_LABELS.isdisjoint(pod.labels) and GROUP_ANNOTATIONS.isdisjoint(pod.annotations):
        return ""
    keys = (GROUP_LABELS & pod.labels.keys()) | (GROUP_ANNOTATIONS & pod.annotations.keys())
    return f"{min(keys)} says that it is admitted or placed with others"
