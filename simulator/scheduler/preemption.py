"""Making room for an important pod by ending less important ones.

Follows pkg/scheduler/framework/preemption and plugins/defaultpreemption of v1.36: for each
node that could help, all lower pods are thought away, then as many as possible are spared,
those with a disruption budget first; the node with the least harm wins. Extenders may veto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from common.cluster.records import NodeName, PodRecord
from common.cluster.snapshot import Snapshot
from common.fit import Candidate, Leave, World
from simulator.api import Json
from simulator.scheduler.extenders import Extender, ExtenderError
from simulator.scheduler.verdicts import NO_VICTIMS, Diagnosis, after_filter, preemption_words
from simulator.scheduler.wire import Victims

MOST_CANDIDATES: Final = 100
_OFFSET: Final = 2**31


@dataclass(frozen=True, slots=True)
class Sacrifice:
    """The pods of a node that would have to go, the most important first."""

    node: NodeName
    victims: tuple[PodRecord, ...]
    violations: int = 0


def candidates(
    world: World, pod: Candidate, diagnosis: Diagnosis
) -> tuple[list[Sacrifice], dict[str, tuple[str, ...]]]:
    """Return the nodes where room can be made, and why not on the others that were tried."""
    found: list[Sacrifice] = []
    tried: dict[str, tuple[str, ...]] = {}
    for name, status in diagnosis.statuses.items():
        if not status.curable or name not in world.snapshot.nodes:
            continue
        node = NodeName(name)
        sacrifice, why = sacrifice_on(world, pod, node)
        if sacrifice is not None:
            found.append(sacrifice)
        else:
            tried[name] = why
        if len(found) >= MOST_CANDIDATES:
            break
    return found, tried


def sacrifice_on(
    world: World, pod: Candidate, node: NodeName
) -> tuple[Sacrifice | None, tuple[str, ...]]:
    """Return the fewest pods that must leave a node for this one, or why that is no use."""
    view = world.snapshot.nodes[node]
    lower = [each for each in view.pods.values() if each.shape.priority < pod.shape.priority]
    if not lower:
        return None, (NO_VICTIMS,)
    left = {each.uid: Leave(each.uid) for each in lower}
    refusals = world.after(*left.values()).ask(pod).refusals(node, first=True)
    if refusals:
        return None, tuple(refusal.words for refusal in refusals)
    lower.sort(key=_importance)
    protected = _protected(lower, world.snapshot)
    victims: list[PodRecord] = []
    for each in sorted(lower, key=lambda p: p.uid not in protected):
        leave = left.pop(each.uid)
        if world.after(*left.values()).ask(pod).refusals(node, first=True):
            left[each.uid] = leave
            victims.append(each)
    if not victims:
        return None, (f'expected at least one victim pod on node "{node}"',)
    victims.sort(key=_importance)
    harmed = sum(each.uid in protected for each in victims)
    return Sacrifice(node, tuple(victims), harmed), ()


def least_harm(found: Sequence[Sacrifice]) -> Sacrifice | None:
    """Return the node to clear (pickOneNodeForPreemption)."""
    return min(found, key=_harm, default=None)


def eligible(pod: PodRecord, diagnosis: Diagnosis, snapshot: Snapshot) -> str:
    """Return why a pod may not displace others; nothing if it may."""
    if not pod.shape.preempts:
        return "not eligible due to preemptionPolicy=Never."
    view = snapshot.nodes.get(pod.nominated_node) if pod.nominated_node else None
    status = diagnosis.statuses.get(pod.nominated_node)
    if view is None or (status is not None and not status.curable):
        return ""
    ending = (p for p in view.pods.values() if p.terminating)
    if any(p.shape.priority < pod.shape.priority for p in ending):
        return "not eligible due to a terminating pod on the nominated node."
    return ""


async def ask_extenders(
    extenders: Sequence[Extender],
    pod: Json,
    found: Sequence[Sacrifice],
    snapshot: Snapshot,
    objects: Mapping[str, Json],
) -> list[Sacrifice]:
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


def refusal_words(nodes: int, tried: Mapping[str, tuple[str, ...]]) -> str:
    """Return what to tell a pod for which no room can be made."""
    return preemption_words(nodes, tried)


def said(words: str) -> str:
    """Return what to tell a pod that may not or cannot displace others."""
    return after_filter(f"preemption: {words}")


def _agreed(
    answer: Mapping[str, Victims], snapshot: Snapshot, *, ignorable: bool
) -> dict[NodeName, Sacrifice]:
    agreed = {}
    for name, victims in answer.items():
        view = snapshot.nodes.get(NodeName(name))
        if view is None:
            raise ExtenderError(f'nodeinfo not found for node name "{name}"')
        by_uid = {str(uid): pod for uid, pod in view.pods.items()}
        unknown = [uid for uid in victims.uids if uid not in by_uid]
        if unknown:
            words = f"claims to preempt pod (UID: {unknown[0]}) on node: {name}, but the pod is "
            raise ExtenderError(f"extender {words}not found on that node")
        if not victims.uids:
            if ignorable:
                continue
            raise ExtenderError(f'expected at least one victim pod on node "{name}"')
        pods = tuple(sorted((by_uid[uid] for uid in victims.uids), key=_importance))
        agreed[NodeName(name)] = Sacrifice(NodeName(name), pods, victims.violations)
    return agreed


def _importance(pod: PodRecord) -> tuple[int, float, str]:
    return -pod.shape.priority, pod.scheduled_s or pod.created_s, pod.uid


def _harm(each: Sacrifice) -> tuple[float, ...]:
    highest = each.victims[0].shape.priority
    youngest = min(
        (p.scheduled_s or 0.0 for p in each.victims if p.shape.priority == highest), default=0.0
    )
    total = sum(p.shape.priority + _OFFSET for p in each.victims)
    return each.violations, highest, total, len(each.victims), -youngest


def _protected(pods: Sequence[PodRecord], snapshot: Snapshot) -> set[str]:
    """Return the pods whose budgets would be overdrawn if all of these went."""
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
