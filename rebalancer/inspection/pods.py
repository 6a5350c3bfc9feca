# SPDX-License-Identifier: Apache-2.0
"""Why a pod is moved, or is not: every gate, the plan, and what would have to change. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from common.api.migrations import Purpose
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord
from common.config import GENERAL, Mode, NamespaceRule, NamespaceRules, NodeRules, Pool, Strategy
from console.data import Fact, Gate, WhyDocument, WhyKind
from rebalancer.goals import title
from rebalancer.inspection import words
from rebalancer.inspection.moment import Inspection
from rebalancer.inspection.moves import rows_of
from rebalancer.planner import Move
from rebalancer.planner.movable import Movable
from rebalancer.refusals import Reason, Refusal

_NAMED: Final = 5
"""Nodes that are named; the rest is counted."""
_OF_MIGRATIONS: Final = (Reason.MIGRATING, Reason.MIGRATED, Reason.MIGRATION_FAILED)


def why_pod(asked: Inspection, name: str) -> WhyDocument | None:
    """Return the answer about `namespace/name`; None if there is no such pod."""
    pod = asked.snapshot.pods_by_name.get(name)
    if pod is None:
        return None
    movable, refusals = asked.movable(pod), against(asked, pod)
    return WhyDocument(
        kind=WhyKind.POD,
        name=pod.key,
        answer=_answer(asked, pod, refusals),
        good=movable is not None,
        facts=tuple(_facts(asked, pod, movable)),
        gates=tuple(gates_of(asked, pod)),
        changes=tuple(_changes(asked, pod, refusals)),
        moves=rows_of(asked.migrations, lambda m: _is_of(m, pod)),
    )


def against(asked: Inspection, pod: PodRecord) -> tuple[Refusal, ...]:
    """Return everything that keeps the planner from moving a pod at all."""
    return (*asked.refusals(pod), *asked.source_refusals(pod.node))


def gates_of(asked: Inspection, pod: PodRecord) -> Iterator[Gate]:
    """Yield every gate, passed or not."""
    known = False
    for name, refusal in asked.verdicts(pod):
        known = known or name in _OF_MIGRATIONS
        yield _gate(name, refusal)
    if not known:
        yield Gate(name="not_moved_yet", passed=True, words=words.NOT_MOVED_YET)
    found = asked.source_refusals(pod.node)
    for refusal in found:
        message = f"{pod.node} gives no pods: {refusal.message}"
        yield _gate("node_gives_pods", refusal.with_message(message))
    if not found and pod.node:
        yield Gate(name="node_gives_pods", passed=True, words=words.NODE_GIVES)


def _gate(name: str, refusal: Refusal | None) -> Gate:
    if refusal is None:
        return Gate(name=name, passed=True, words=words.passed(name))
    return Gate(name=refusal.name, passed=False, words=refusal.message, for_good=refusal.permanent)


def _is_of(migration: MigrationRecord, pod: PodRecord) -> bool:
    """Tell whether a move is of this pod, made it, or is of its predecessor of the same name."""
    named = (migration.namespace, migration.pod_name) == (pod.namespace, pod.name)
    return named or pod.uid in (migration.pod_uid, migration.replacement_uid)


def _answer(asked: Inspection, pod: PodRecord, refusals: tuple[Refusal, ...]) -> str:
    move, under_way = asked.moves.get(pod.uid), _under_way(asked, pod)
    if under_way is not None:
        return f"It is being moved from {under_way.source} to {under_way.target} now."
    if refusals:
        more = len(refusals) - 1
        rest = f" ({words.counted(more, 'more reason')} below)" if more else ""
        return f"It is not moved: {refusals[0].message}{rest}."
    if move is not None:
        return f"{_when(asked, move)} from {move.source} to {move.target}: {move.message}."
    return _stays(asked, pod)


def _when(asked: Inspection, move: Move) -> str:
    decided = asked.rules.mode_of(move.strategy, move.source, move.pod.partition("/")[0])
    if decided.mode is Mode.OBSERVE:
        by = "mode" if decided.by == GENERAL else f"modes of {decided.by}"
        return f"It would be moved, but {move.strategy} only observes ({by}),"
    if asked.config.paused:
        return "It would be moved, but moves are paused by the configuration,"
    if asked.pause is not None:
        return f"It would be moved, but moves are paused by {asked.pause.by or 'someone'},"
    if move.this_cycle:
        return "The plan moves it in this cycle"
    return f"The plan moves it later ({move.deferred_by})"


def _stays(asked: Inspection, pod: PodRecord) -> str:
    stays = asked.stays.get(pod.uid, ())
    if stays:
        return f"It may be moved, and stays: {stays[0].message}."
    if not asked.rules.of_node(pod.node).enabled_strategies:
        return "It may be moved, but no strategy is enabled (enabledStrategies)."
    load = asked.load.nodes.get(pod.node)
    used = words.shown_percent(load.cpu_percent if load is not None and load.known else None)
    return f"It may be moved, and nothing calls for it: {pod.node} uses {used} CPU."


def _under_way(asked: Inspection, pod: PodRecord) -> MigrationRecord | None:
    return next((m for m in asked.migrations if m.open and m.pod_uid == pod.uid), None)


def _facts(asked: Inspection, pod: PodRecord, movable: Movable | None) -> Iterator[Fact]:
    yield Fact(label="Node", text=pod.node or "none", kind=_node_kind(pod), name=pod.node)
    owner = owner_words(asked, pod)
    top = asked.snapshot.top_workload(pod)
    linked = WhyKind.WORKLOAD if top is not None else None
    yield Fact(label="Workload", text=owner, kind=linked, name=top.key if top is not None else "")
    load = asked.load.load_of(pod)
    used = words.amounts(load.cpu_milli, load.mem_bytes)
    yield Fact(label="Load", text=f"{used} ({load.basis.value})")
    asks = pod.requests
    yield Fact(label="Requests", text=words.amounts(asks.cpu_milli, asks.mem_bytes))
    yield Fact(label="Priority", text=str(pod.shape.priority))
    yield Fact(label="Scheduler", text=pod.shape.scheduler_name)
    yield Fact(label="Age", text=words.duration(asked.now_s - pod.created_s))
    yield from rule_facts(asked, pod.node, pod.namespace)
    yield from _goal_facts(asked, pod)
    yield from _other_purpose(asked, pod)
    if movable is not None:
        yield from target_facts(asked, movable)


def rule_facts(asked: Inspection, node: NodeName, namespace: str | None = None) -> Iterator[Fact]:
    """Yield which rules decide about a node or a pod, and what; nothing where none is configured.

    Without a namespace the question is about the node.
    """
    rules, config = asked.rules, asked.config
    if not (rules.rules.any or rules.rules.scheduled or config.modes):
        return
    found = rules.of_node(node)
    if config.pools:
        text = _pool_words(found) + _overruled(rules.overruled_pools(node))
        yield Fact(label="Pool rule", text=text)
    if namespace is not None and config.namespaces:
        text = _namespace_words(rules.of_namespace(namespace))
        text += _overruled(rules.overruled_namespaces(namespace))
        yield Fact(label="Namespace rule", text=text)
    limits = list(_limits(found.pool, found.words))
    if namespace is not None:
        spaces = rules.of_namespace(namespace)
        limits += _limits(spaces.rule, spaces.words)
    if limits:
        yield Fact(label="Limits", text="; ".join(limits))
    for strategy in found.enabled_strategies:
        yield Fact(label=strategy.value, text=_strategy_words(asked, strategy, node, namespace))


def _pool_words(found: NodeRules) -> str:
    if found.pool is None:
        return f"none matches: {GENERAL} holds"
    selector = found.pool.node_selector or "all nodes"
    return f"{found.words} ({selector}) {_set_by(found.pool, 'name', 'node_selector')}"


def _namespace_words(found: NamespaceRules) -> str:
    if found.rule is None:
        return f"none matches: {GENERAL} holds"
    return f"{found.words} {_set_by(found.rule, 'selector')}"


def _set_by(rule: Pool | NamespaceRule, *besides: str) -> str:
    """Return which keys a rule sets, in the order of the reference."""
    keys = [
        str(info.alias)
        for name, info in type(rule).model_fields.items()
        if name not in besides and name in rule.model_fields_set
    ]
    return f"sets {', '.join(keys)}" if keys else "sets nothing"


def _limits(rule: Pool | NamespaceRule | None, words: str) -> Iterator[str]:
    """Yield the limits that a rule sets, and the width that it allows a pool."""
    if rule is None:
        return
    if isinstance(rule, Pool) and rule.imbalance_threshold is not None:
        yield f"imbalanceThreshold {rule.imbalance_threshold:g}, by {words}"
    for name, info in type(rule.limits).model_fields.items():
        most = getattr(rule.limits, name)
        if most is not None:
            yield f"{info.alias} {most}, by {words}"


def _overruled(later: Sequence[NodeRules | NamespaceRules]) -> str:
    """Say which rules match as well."""
    if not later:
        return ""
    verb = "matches" if len(later) == 1 else "match"
    names = " and ".join(each.words for each in later)
    return f"; {names} {verb} too, without effect"


def _strategy_words(
    asked: Inspection, strategy: Strategy, node: NodeName, namespace: str | None
) -> str:
    rules = asked.rules
    if namespace is None:
        decided = rules.of_node(node).mode_of(strategy)
        closed = rules.closed(strategy, node, None)
    else:
        decided = rules.mode_of(strategy, node, namespace)
        closed = rules.closed(strategy, node, namespace)
    waits = f"; {closed.message}" if closed is not None else ""
    return f"{decided.mode.value}, by {decided.by}{waits}"


def _node_kind(pod: PodRecord) -> WhyKind | None:
    return WhyKind.NODE if pod.node else None


def owner_words(asked: Inspection, pod: PodRecord) -> str:
    """Return what users call the workload of a pod."""
    top = asked.snapshot.top_workload(pod)
    if top is not None:
        return f"{top.kind} {top.key}"
    return f"{pod.owner.kind} {pod.namespace}/{pod.owner.name}" if pod.owner else "none"


def _goal_facts(asked: Inspection, pod: PodRecord) -> Iterator[Fact]:
    row = asked.problem.row_of.get(pod.node)
    goal = asked.problem.goal_of(row) if row is not None else None
    if goal is not None:
        yield Fact(label="Goal of its node", text=title(goal))
    for spread in asked.problem.spreads:
        if pod.node in spread.nodes:
            yield Fact(label="Goal of its pool", text=title(spread))


def _other_purpose(asked: Inspection, pod: PodRecord) -> Iterator[Fact]:
    """Say whether a drain of its node would move the pod, if load is what it is judged for."""
    if asked.purpose_of(pod) is Purpose.MAINTENANCE:
        yield Fact(label="Judged for", text="maintenance: its node is drained")
        return
    found = asked.refusals(pod, Purpose.MAINTENANCE)
    text = "it would be moved too" if not found else f"it would stay: {found[0].message}"
    yield Fact(label="If its node were drained", text=text)


def target_facts(asked: Inspection, movable: Movable) -> Iterator[Fact]:
    """Yield where a pod could go now, or what the other nodes have against it."""
    draft, names = asked.draft, asked.problem.nodes
    rows = np.flatnonzero(draft.targets(movable)).tolist()
    if rows:
        shown = ", ".join(names[row] for row in rows[:_NAMED])
        more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
        yield Fact(label="Could go to", text=f"{shown}{more}")
        return
    counts: Counter[str] = Counter()
    for row in range(len(names)):
        if row != movable.row:
            counts.update(refusal.name for refusal in list(draft.refusals(movable, row))[:1])
    why = ", ".join(f"{count} × {name}" for name, count in counts.most_common(_NAMED))
    yield Fact(label="Could go to", text=f"no node ({why})" if why else "no other node")


def _changes(asked: Inspection, pod: PodRecord, refusals: tuple[Refusal, ...]) -> Iterator[str]:
    if refusals:
        yield from words.remedies(refusals)
        return
    move, stays = asked.moves.get(pod.uid), asked.stays.get(pod.uid, ())
    if move is not None:
        decided = asked.rules.mode_of(move.strategy, move.source, pod.namespace)
        if decided.mode is Mode.OBSERVE:
            where = "" if decided.by == GENERAL else f" in {decided.by}"
            yield f"mode: act, or modes: {{{move.strategy}: act}}{where}, would carry it out"
        if asked.config.paused:
            yield "paused: false would carry it out"
        if asked.pause is not None:
            yield "evenkeel resume would carry it out"
    elif stays:
        yield from words.remedies(stays)
    else:
        yield from _calls(asked, pod)


def _calls(asked: Inspection, pod: PodRecord) -> Iterator[str]:
    """Yield what would call for moving a pod that may be moved."""
    rules = asked.rules.of_node(pod.node)
    if not rules.enabled_strategies:
        yield "enable a strategy (enabledStrategies)"
        return
    limits = " or ".join(words.limits(asked.config, rules.thresholds))
    yield (
        f"{pod.node} above {limits}, its pool more than {rules.imbalance_threshold:g} points "
        f"apart, or maintenance of {pod.node}"
    )
