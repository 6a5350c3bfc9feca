# SPDX-License-Identifier: Apache-2.0
"""Preemption: making room for a pod by deleting pods of lower priority.

Follows pkg/scheduler/framework/preemption and plugins/defaultpreemption of v1.36: for each
node that could help, all pods of lower priority are removed, then as many as possible are
reprieved, those with a PDB first; the node with the least disruption wins. Extenders may veto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName, PodRecord
from common.fit import Candidate, Leave, World
from common.kube.resources import PODS
from simulator.api import DeleteOptions, Json, condition, timestamp, with_condition
from simulator.api.errors import Conflict, NotFound
from simulator.context import Context
from simulator.scheduler.diagnosis import NO_VICTIMS, Diagnosis, after_filter, preemption_message
from simulator.scheduler.extenders import Extender, ExtenderError
from simulator.scheduler.wire import Victims

MOST_CANDIDATES: Final = 100
_OFFSET: Final = 2**31


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """The victims on a node, the highest priority first."""

    node: NodeName
    victims: tuple[PodRecord, ...]
    violations: int = 0


def candidates(
    world: World, pod: Candidate, diagnosis: Diagnosis
) -> tuple[list[NodeVictims], dict[str, tuple[str, ...]]]:
    """Return the nodes where preemption helps, and why not on the others that were tried."""
    found: list[NodeVictims] = []
    tried: dict[str, tuple[str, ...]] = {}
    for name, status in diagnosis.statuses.items():
        if not status.resolvable or name not in world.snapshot.nodes:
            continue
        node = NodeName(name)
        victims_there, why = select_victims(world, pod, node)
        if victims_there is not None:
            found.append(victims_there)
        else:
            tried[name] = why
        if len(found) >= MOST_CANDIDATES:
            break
    return found, tried


def select_victims(
    world: World, pod: Candidate, node: NodeName
) -> tuple[NodeVictims | None, tuple[str, ...]]:
    """Return the fewest victims on a node (SelectVictimsOnNode), or why there are none."""
    view = world.snapshot.nodes[node]
    lower = [each for each in view.pods.values() if each.shape.priority < pod.shape.priority]
    if not lower:
        return None, (NO_VICTIMS,)
    left = {each.uid: Leave(each.uid) for each in lower}
    rejected = world.after(*left.values()).ask(pod).rejections(node, first=True)
    if rejected:
        return None, tuple(each.message for each in rejected)
    lower.sort(key=_importance)
    protected = _protected(lower, world.snapshot)
    victims: list[PodRecord] = []
    for each in sorted(lower, key=lambda p: p.uid not in protected):
        leave = left.pop(each.uid)
        if world.after(*left.values()).ask(pod).rejections(node, first=True):
            left[each.uid] = leave
            victims.append(each)
    if not victims:
        return None, (f'expected at least one victim pod on node "{node}"',)
    victims.sort(key=_importance)
    harmed = sum(each.uid in protected for each in victims)
    return NodeVictims(node, tuple(victims), harmed), ()


def least_harm(found: Sequence[NodeVictims]) -> NodeVictims | None:
    """Return the node to clear (pickOneNodeForPreemption)."""
    return min(found, key=_harm, default=None)


def eligible(pod: PodRecord, diagnosis: Diagnosis, snapshot: Snapshot) -> str:
    """Return why a pod may not preempt (PodEligibleToPreemptOthers); empty if it may."""
    if not pod.shape.preempts:
        return "not eligible due to preemptionPolicy=Never."
    view = snapshot.nodes.get(pod.nominated_node) if pod.nominated_node else None
    status = diagnosis.statuses.get(pod.nominated_node)
    if view is None or (status is not None and not status.resolvable):
        return ""
    ending = (p for p in view.pods.values() if p.terminating)
    if any(p.shape.priority < pod.shape.priority for p in ending):
        return "not eligible due to a terminating pod on the nominated node."
    return ""


async def ask_extenders(
    extenders: Sequence[Extender],
    pod: Json,
    found: Sequence[NodeVictims],
    snapshot: Snapshot,
    objects: Mapping[str, Json],
) -> list[NodeVictims]:
    """Let extenders drop or change candidates; `objects` are the victims by uid."""
    left = {each.node: each for each in found}
    for extender in extenders:
        if not left or not extender.config.preempt_verb or not extender.is_interested(pod):
            continue
        meta: dict[str, Victims] = {
            name: Victims(tuple(v.uid for v in each.victims), each.violations)
            for name, each in left.items()
        }
        full: dict[str, Sequence[Json]] = {
            name: [objects[v.uid] for v in each.victims if v.uid in objects]
            for name, each in left.items()
        }
        try:
            answer = await extender.preempt(pod, meta, full)
            left = _agreed(answer, snapshot, ignorable=extender.ignorable)
        except ExtenderError:
            if not extender.ignorable:
                raise
    return list(left.values())


class Preemptor:
    """Deletes victims and nominates the node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store

    async def preempt(
        self,
        world: World,
        candidate: Candidate,
        record: PodRecord,
        pod: Json,
        diagnosis: Diagnosis,
        extenders: Sequence[Extender],
    ) -> tuple[str | None, str]:
        """Return the node to nominate (None: no change), and the message."""
        why_not = eligible(record, diagnosis, world.snapshot)
        if why_not:
            return None, after_filter(f"preemption: {why_not}")
        found, tried = candidates(world, candidate, diagnosis)
        if not found:
            return "", preemption_message(diagnosis.nodes, tried)
        objects = self._objects(found)
        agreed = await ask_extenders(extenders, pod, found, world.snapshot, objects)
        chosen = least_harm(agreed)
        if chosen is None:
            return None, after_filter("preemption: no candidate node for preemption")
        for victim in chosen.victims:
            self._end(victim, pod, chosen.node)
        return chosen.node, ""

    def _objects(self, found: Sequence[NodeVictims]) -> dict[str, Json]:
        victims = (victim for each in found for victim in each.victims)
        pods = ((v.uid, self._store.find(PODS, v.name, v.namespace)) for v in victims)
        return {uid: pod for uid, pod in pods if pod is not None}

    def _end(self, victim: PodRecord, preemptor: Json, node: str) -> None:
        name = preemptor["spec"].get("schedulerName", "default-scheduler")
        target = condition(
            "DisruptionTarget",
            "True",
            timestamp(self._context.time_scale.clock.now()),
            reason="PreemptionByScheduler",
            message=f"{name}: preempting to accommodate a higher priority pod",
        )
        try:
            pod = self._store.modify(
                PODS,
                victim.name,
                lambda old: with_condition(old, target),
                namespace=victim.namespace,
                status=True,
            )
            self._store.delete(
                PODS,
                victim.name,
                namespace=victim.namespace,
                options=DeleteOptions(uid=victim.uid),
            )
        except (NotFound, Conflict):
            return
        uid = preemptor["metadata"]["uid"]
        note = f"Preempted by pod {uid} on node {node}"
        self._context.recorder.record(
            pod, by=name, reason="Preempted", note=note, action="Preempting"
        )


def _agreed(
    answer: Mapping[str, Victims], snapshot: Snapshot, *, ignorable: bool
) -> dict[NodeName, NodeVictims]:
    agreed = {}
    for name, victims in answer.items():
        view = snapshot.nodes.get(NodeName(name))
        if view is None:
            raise ExtenderError(f'nodeinfo not found for node name "{name}"')
        by_uid = {str(uid): pod for uid, pod in view.pods.items()}
        unknown = [uid for uid in victims.uids if uid not in by_uid]
        if unknown:
            message = f"claims to preempt pod (UID: {unknown[0]}) on node: {name}, but the pod is "
            raise ExtenderError(f"extender {message}not found on that node")
        if not victims.uids:
            if ignorable:
                continue
            raise ExtenderError(f'expected at least one victim pod on node "{name}"')
        pods = tuple(sorted((by_uid[uid] for uid in victims.uids), key=_importance))
        agreed[NodeName(name)] = NodeVictims(NodeName(name), pods, victims.violations)
    return agreed


def _importance(pod: PodRecord) -> tuple[int, float, str]:
    return -pod.shape.priority, pod.scheduled_s or pod.created_s, pod.uid


def _harm(each: NodeVictims) -> tuple[float, ...]:
    highest = each.victims[0].shape.priority
    youngest = min(
        (p.scheduled_s or 0.0 for p in each.victims if p.shape.priority == highest), default=0.0
    )
    total = sum(p.shape.priority + _OFFSET for p in each.victims)
    return each.violations, highest, total, len(each.victims), -youngest


def _protected(pods: Sequence[PodRecord], snapshot: Snapshot) -> set[str]:
    """Return the pods whose PDBs would be violated if all of these were deleted."""
    budgets = list(snapshot.budgets.values())
    allowed = {id(budget): budget.disruptions_allowed for budget in budgets}
    found: set[str] = set()
    for pod in pods:
        for budget in budgets:
            if budget.namespace != pod.namespace or not budget.selector.matches(pod.labels):
                continue
            allowed[id(budget)] -= 1
            if allowed[id(budget)] < 0:
                found.add(pod.uid)
    return found
