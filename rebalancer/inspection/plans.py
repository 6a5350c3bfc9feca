# SPDX-License-Identifier: Apache-2.0
"""The plan as people see it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from common.cache.snapshot import NodeView
from common.cluster.records import NodeName
from console.data import PlanDocument, PlannedMove, Reason, Staying, UnmetGoal
from rebalancer.inspection.moment import Inspection
from rebalancer.inspection.nodes import ceilings, cell, reasons
from rebalancer.planner import Move
from rebalancer.refusals import Refusal

NAMED: Final = 50
"""Pods that stay for one reason and are named."""


def plan_document(asked: Inspection, made_s: float) -> PlanDocument:
    """Return the plan of a moment."""
    plan = asked.plan
    this_cycle = sum(move.this_cycle for move in plan.moves)
    unmet = tuple(
        UnmetGoal(goal=each.goal, strategy=each.strategy.value, reason=reasons((each.why,))[0])
        for each in plan.unmet
    )
    named = {each.goal.split(" ", 1)[0] for each in plan.unmet}
    touched = [n for n in plan.nodes if (n.role or n.name in named) and n.name in _known(asked)]
    return PlanDocument(
        plan_id=plan.plan_id,
        made_s=made_s,
        strategies=tuple(map(str, plan.strategies)),
        goals=plan.goals,
        evictions=len(plan.moves),
        this_cycle=this_cycle,
        deferred=len(plan.moves) - this_cycle,
        lower_bound=plan.lower_bound.evictions,
        bound_words=plan.lower_bound.message,
        moves=tuple(map(_move, plan.moves)),
        touched=tuple(cell(asked, _known(asked)[node.name], node) for node in touched),
        ceilings=ceilings(asked),
        unmet=unmet,
        staying=tuple(_staying(asked)),
        notes=plan.notes,
    )


def _known(asked: Inspection) -> Mapping[NodeName, NodeView]:
    return asked.snapshot.nodes


def _move(move: Move) -> PlannedMove:
    return PlannedMove(
        pod=move.pod,
        owner=move.owner,
        source=move.source,
        target=move.target,
        alternatives=move.alternatives,
        strategy=move.strategy.value,
        reason=move.reason,
        words=move.message,
        chain=move.chain,
        this_cycle=move.this_cycle,
        deferred_by=move.deferred_by,
        cpu_milli=round(move.cpu_milli, 1),
        memory_bytes=round(move.mem_bytes),
    )


def _staying(asked: Inspection) -> Iterator[Staying]:
    """Fold pods that stay by reason, the commonest first."""
    pods: dict[str, list[str]] = defaultdict(list)
    sample: dict[str, Refusal] = {}
    for refused in asked.plan.refused:
        for reason in refused.reasons:
            pods[reason.name].append(refused.pod)
            sample.setdefault(reason.name, reason)
    for name in sorted(pods, key=lambda name: (-len(pods[name]), name)):
        first = sample[name]
        yield Staying(
            reason=Reason(name=name, words=first.message, for_good=first.permanent),
            count=len(pods[name]),
            pods=tuple(sorted(pods[name])[:NAMED]),
        )
