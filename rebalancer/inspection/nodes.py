# SPDX-License-Identifier: Apache-2.0
"""Nodes: their load, their pods, and why one gives or takes pods or does not. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from common.api.contract import Unknown, under_maintenance
from common.api.migrations import Purpose
from common.cache.snapshot import NodeView
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord
from common.config import LoadSettings, Thresholds
from common.load import NodeLoad
from console.data import (
    Ceilings,
    ClusterDocument,
    Fact,
    Gate,
    LoadMoment,
    NodeCell,
    NodeDocument,
    NodeState,
    PlanRole,
    PodOnNode,
    Reason,
    WhyDocument,
    WhyKind,
)
from rebalancer.goals import title
from rebalancer.inspection import words
from rebalancer.inspection.moment import Inspection
from rebalancer.inspection.moves import rows_of
from rebalancer.inspection.pods import against, owner_words, rule_facts
from rebalancer.planner.plan import NodePlan
from rebalancer.refusals import Refusal
from rebalancer.strategies import node_verdicts, pressure
from rebalancer.strategies.participation import WHY_UNKNOWN, Role, Rule
from rebalancer.strategies.pools import pool_of

ZONE: Final = "topology.kubernetes.io/zone"
LISTED: Final = 500
"""Pods of a node that are listed."""
_SETTLING: Final = (
    "pods came or left: its pressure and further resources call for no move until a whole "
    "prometheus.window has passed"
)


def cluster_document(asked: Inspection) -> ClusterDocument:
    """Return all nodes, now and after the plan."""
    belief, planned = asked.belief, {node.name: node for node in asked.plan.nodes}
    return ClusterDocument(
        at_s=_sampled_s(asked),
        source=belief.source.asked.value,
        trouble=belief.trouble or (belief.source.why if belief.source.without_metrics else ""),
        ceilings=ceilings(asked),
        evictions=len(asked.plan.moves),
        nodes=tuple(
            cell(asked, view, planned.get(name))
            for name, view in sorted(asked.snapshot.nodes.items())
        ),
    )


def load_moment(asked: Inspection) -> LoadMoment:
    """Return how loaded nodes are, without all else: cheap enough to be asked for every sample."""
    names = tuple(sorted(asked.snapshot.nodes))
    known = [levels(asked.load.nodes.get(name)) for name in names]
    cpu, memory = zip(*known, strict=True) if known else ((), ())
    return LoadMoment(at_s=_sampled_s(asked), names=names, cpu=cpu, memory=memory)


def _sampled_s(asked: Inspection) -> float:
    nodes = asked.load.nodes.values()
    ends = [node.sample_end_s for node in nodes if node.sample_end_s is not None]
    return max(ends, default=asked.now_s)


def ceilings(asked: Inspection, node: NodeName | None = None) -> Ceilings:
    """Return what the configuration asks for, or what holds for one node."""
    config = asked.config
    if node is not None:
        rules = asked.rules.of_node(node)
        limits = rules.thresholds
        return Ceilings(cpu=limits.cpu, memory=limits.memory, imbalance=rules.imbalance_threshold)
    return Ceilings(
        cpu=config.cpu_threshold,
        memory=config.memory_threshold,
        imbalance=config.imbalance_threshold,
    )


def cell(asked: Inspection, view: NodeView, planned: NodePlan | None) -> NodeCell:
    """Return one node of the cluster; what is unknown is None."""
    node, load = view.node, asked.load.nodes.get(view.node.name)
    cpu, memory = levels(load)
    offered = node.allocatable
    rules = asked.rules.of_node(node.name)
    limits = rules.thresholds
    moved = planned is not None and bool(planned.role)
    return NodeCell(
        name=node.name,
        pool=pool_of(node, asked.config.pool_label, rules.name),
        zone=node.labels.get(ZONE, ""),
        state=state_of(view, load),
        role=PlanRole(planned.role) if planned is not None else PlanRole.NONE,
        cpu=cpu,
        memory=memory,
        cpu_requests=_share(view.requested.cpu_milli, offered.cpu_milli),
        memory_requests=_share(view.requested.mem_bytes, offered.mem_bytes),
        cpu_after=words.percent(planned.after.cpu) if planned is not None and moved else cpu,
        memory_after=(
            words.percent(planned.after.memory) if planned is not None and moved else memory
        ),
        pods=len(view.pods),
        note=why_unknown(load) or above(asked.config, limits, load),
        cpu_ceiling=None if limits.cpu == asked.config.cpu_threshold else limits.cpu,
        memory_ceiling=None if limits.memory == asked.config.memory_threshold else limits.memory,
    )


def levels(load: NodeLoad | None) -> tuple[float | None, float | None]:
    """Return CPU and memory in percent; None where the load is not known."""
    if load is None or not load.known:
        return None, None
    return words.percent(load.cpu_percent), words.percent(load.mem_percent)


def why_unknown(load: NodeLoad | None) -> str:
    """Return why the load of a node is not known; empty if it is."""
    why = Unknown.NO_SAMPLE if load is None else load.why
    return WHY_UNKNOWN[why] if why is not None else ""


def above(config: LoadSettings, limits: Thresholds, load: NodeLoad | None) -> str:
    """Return which pressure and further resources of a node are above what is allowed."""
    if load is None or not load.known:
        return ""
    pressed = (pressure.words(load, d, config) for d in pressure.under_pressure(load, config))
    rows = zip(config.further_resources, load.further, limits.further, strict=False)
    further = (
        f"{words.shown_percent(words.percent(found.percent))} {resource.name} (allowed {most:g} %)"
        for resource, found, most in rows
        if found.known and found.percent > most
    )
    return ", ".join((*pressed, *further))


def state_of(view: NodeView, load: NodeLoad | None) -> NodeState:
    """Return what is most important about a node beside its load."""
    if not view.node.ready:
        return NodeState.NOT_READY
    if under_maintenance(view.node.labels):
        return NodeState.MAINTENANCE
    if view.node.unschedulable:
        return NodeState.CORDONED
    return NodeState.UNKNOWN if load is None or not load.known else NodeState.READY


def _share(asked: float, offered: float) -> float | None:
    return words.percent(100.0 * asked / offered) if offered > 0 else None


def reasons(refusals: tuple[Refusal, ...]) -> tuple[Reason, ...]:
    """Return refusals as people see them."""
    return tuple(Reason(name=r.name, words=r.message, for_good=r.permanent) for r in refusals)


def node_document(asked: Inspection, name: str) -> NodeDocument | None:
    """Return one node; None if there is none of that name."""
    view = asked.snapshot.nodes.get(NodeName(name))
    if view is None:
        return None
    planned = {node.name: node for node in asked.plan.nodes}.get(view.node.name)
    parts, load = asked.demand.assessment.participation, asked.load.nodes.get(view.node.name)
    pods = sorted(view.pods.values(), key=lambda pod: (-_size(asked, view, pod), pod.key))
    return NodeDocument(
        at_s=load.sample_end_s if load is not None and load.sample_end_s else asked.now_s,
        cell=cell(asked, view, planned),
        ceilings=ceilings(asked, view.node.name),
        cpu_milli=float(view.node.allocatable.cpu_milli),
        memory_bytes=float(view.node.allocatable.mem_bytes),
        created_s=view.node.created_s,
        taints=tuple(f"{t.key}={t.value or ''}:{t.effect}" for t in view.node.taints),
        labels=dict(view.node.labels),
        not_a_source=reasons(parts.sources_refused.get(view.node.name, ())),
        not_a_target=reasons(parts.targets_refused.get(view.node.name, ())),
        pods=tuple(_pod_on(asked, view, pod) for pod in pods[:LISTED]),
        pods_left_out=max(0, len(pods) - LISTED),
        moves=rows_of(asked.migrations, lambda m: _touches(m, view.node.name)),
    )


def _touches(migration: MigrationRecord, node: NodeName) -> bool:
    return node in (migration.source, migration.target, migration.replacement_node)


def _size(asked: Inspection, view: NodeView, pod: PodRecord) -> float:
    """Return the larger share of its node that a pod uses."""
    load, offered = asked.load.load_of(pod), view.node.allocatable
    return max(
        load.cpu_milli / max(1, offered.cpu_milli), load.mem_bytes / max(1, offered.mem_bytes)
    )


def _pod_on(asked: Inspection, view: NodeView, pod: PodRecord) -> PodOnNode:
    load, offered, move = asked.load.load_of(pod), view.node.allocatable, asked.moves.get(pod.uid)
    return PodOnNode(
        pod=pod.key,
        owner=owner_words(asked, pod),
        cpu_milli=round(load.cpu_milli, 1),
        memory_bytes=round(load.mem_bytes),
        cpu=_share(load.cpu_milli, offered.cpu_milli),
        memory=_share(load.mem_bytes, offered.mem_bytes),
        basis=load.basis.value,
        priority=pod.shape.priority,
        reasons=reasons(against(asked, pod)),
        target=move.target if move is not None else "",
    )


def why_node(asked: Inspection, name: str) -> WhyDocument | None:
    """Return the answer about a node; None if there is none of that name."""
    view = asked.snapshot.nodes.get(NodeName(name))
    if view is None:
        return None
    node = view.node.name
    found = node_verdicts(asked.demand.cluster, node)
    refusals = tuple(refusal for _, refusal in found if refusal is not None)
    against = [f"{closed(rule)}: {refusal.message}" for rule, refusal in found if refusal]
    return WhyDocument(
        kind=WhyKind.NODE,
        name=node,
        answer=_answer(asked, view, against),
        good=not refusals,
        facts=tuple(_facts(asked, view)),
        gates=tuple(_gate(rule, refusal) for rule, refusal in found),
        changes=tuple(_changes(asked, view, refusals)),
        moves=rows_of(asked.migrations, lambda m: _touches(m, node)),
    )


def _gate(rule: Rule, refusal: Refusal | None) -> Gate:
    if refusal is None:
        return Gate(name=rule.name, passed=True, words=words.passed(rule.name))
    said = f"{refusal.message}, so {closed(rule)}"
    return Gate(name=refusal.name, passed=False, words=said, for_good=refusal.permanent)


def closed(rule: Rule) -> str:
    """Return what a rule keeps a node from."""
    if Role.SOURCE in rule.closes:
        return "it neither gives nor takes pods for load"
    if Role.TARGET in rule.closes:
        return "it takes no pods for load"
    if Role.SPREAD in rule.closes:
        return "it is not compared with other nodes (LoadBalancing)"
    return "drains use it last" if Role.FIRST_REFUGE in rule.closes else "drains do not use it"


def _answer(asked: Inspection, view: NodeView, against: Sequence[str]) -> str:
    name, leaving, coming = view.node.name, *_planned(asked, view.node.name)
    if asked.drains(name):
        left = f"the plan moves {words.counted(leaving, 'pod')} away"
        return f"{name} is under maintenance: {left}, {len(view.pods) - leaving} stay."
    cpu, memory = levels(asked.load.nodes.get(name))
    use = f"{name} uses {words.shown_percent(cpu)} CPU and {words.shown_percent(memory)} memory"
    if leaving or coming:
        away = f"{words.counted(leaving, 'pod')} away" if leaving else ""
        there = f"{words.counted(coming, 'pod')} there" if coming else ""
        return f"{use}; the plan moves {' and '.join(filter(None, (away, there)))}."
    unmet = [u for u in asked.plan.unmet if u.goal.split(" ", 1)[0] == name]
    if unmet:
        return f"{use}. {unmet[0].goal} is not met: {unmet[0].why.message}."
    if against:
        return f"{use}, and {against[0]}."
    return f"{use}, and nothing calls for a move."


def _planned(asked: Inspection, node: NodeName) -> tuple[int, int]:
    moves = asked.plan.moves
    return sum(m.source == node for m in moves), sum(m.target == node for m in moves)


def _facts(asked: Inspection, view: NodeView) -> Iterator[Fact]:
    name, load = view.node.name, asked.load.nodes.get(view.node.name)
    cpu, memory = levels(load)
    note = why_unknown(load)
    shown = [f"{words.shown_percent(cpu)} CPU", f"{words.shown_percent(memory)} memory"]
    further = load.further if load is not None else ()
    for resource, found in zip(asked.config.further_resources, further, strict=False):
        level = words.shown_percent(words.percent(found.percent) if found.known else None)
        shown.append(f"no {resource.name}" if found.offered == 0.0 else f"{level} {resource.name}")
    yield Fact(label="Load", text=f"unknown: {note}" if note else ", ".join(shown))
    offered = view.node.allocatable
    yield Fact(label="Allocatable", text=words.amounts(offered.cpu_milli, offered.mem_bytes))
    asks = view.requested
    yield Fact(label="Requested", text=words.amounts(asks.cpu_milli, asks.mem_bytes))
    limits = words.limits(asked.config, asked.rules.of_node(name).thresholds)
    yield Fact(label="Ceilings", text=", ".join(limits))
    if asked.config.pressure.is_judged:
        yield Fact(label="Pressure", text=_pressure_words(asked.config, load))
    if name in asked.demand.cluster.settling:
        yield Fact(label="Settling", text=_SETTLING)
    yield from rule_facts(asked, name)
    if load is not None and load.sample_end_s is not None:
        age = words.duration(asked.now_s - load.sample_end_s)
        yield Fact(label="Measured", text=f"{age} ago, from {asked.belief.source.asked.value}")
    yield Fact(label="Age", text=words.duration(asked.now_s - view.node.created_s))
    for goal in asked.problem.goals:
        if name in getattr(goal, "nodes", (getattr(goal, "node", ""),)):
            yield Fact(label="Goal", text=title(goal))
    yield from _pod_facts(asked, view)


def _pressure_words(config: LoadSettings, load: NodeLoad | None) -> str:
    known = pressure.pressures(load) if load is not None and load.known else {}
    return ", ".join(
        f"{words.shown_percent(known.get(dimension))} {dimension.label} (allowed {most:g} %)"
        for dimension, most in pressure.allowed(config).items()
    )


def _pod_facts(asked: Inspection, view: NodeView) -> Iterator[Fact]:
    refused: Counter[str] = Counter()
    free = 0
    for pod in view.pods.values():
        found = against(asked, pod)
        refused.update(each.name for each in found[:1])
        free += not found
    total = len(view.pods)
    yield Fact(label="Pods", text=f"{total}, of which {free} may be moved now")
    if refused:
        text = ", ".join(f"{count} × {name}" for name, count in refused.most_common())
        yield Fact(label="Pods that stay", text=text)
    stay = sum(bool(asked.refusals(pod, Purpose.MAINTENANCE)) for pod in view.pods.values())
    text = f"{total - stay} may be moved, {stay} have to stay"
    yield Fact(label="If it were drained", text=text)


def _changes(asked: Inspection, view: NodeView, refusals: tuple[Refusal, ...]) -> Iterator[str]:
    yield from words.remedies(refusals)
    name = view.node.name
    for unmet in asked.plan.unmet:
        if unmet.goal.split(" ", 1)[0] == name:
            yield f"{unmet.why.name}: {unmet.why.message}"
    if not asked.rules.of_node(name).enabled_strategies:
        yield "enable a strategy (enabledStrategies)"
