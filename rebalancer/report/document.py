# SPDX-License-Identifier: Apache-2.0
"""The plan as a JSON document, and the schema of that document.

Names and shapes are a contract with programs that read plans. Percentages carry one
decimal, so that two plans can be compared by eye and by diff.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from common.usage import SourceChoice
from common.visible import visible_json
from rebalancer.goals import Removal
from rebalancer.planner.plan import Bound, Level, Move, NodePlan, OptOut, Plan, Refused, Unmet
from rebalancer.refusals import Refusal

SCHEMA_ID: Final = "urn:evenkeel:v1alpha1:plan"

Count = Annotated[int, msgspec.Meta(ge=0)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the parts of the document."""


class Percentages(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """Percent of allocatable; null where the node does not say how much it has."""

    cpu: float | None
    memory: float | None
    further: dict[str, float | None] = {}
    """Of further resources, by name, where there are any."""


class ReasonDocument(_Part, frozen=True, kw_only=True):
    """Why something is not done."""

    name: str
    words: str
    for_good: bool


class MoveDocument(_Part, frozen=True, kw_only=True):
    """One eviction and where its replacement is to run."""

    pod: str
    uid: str
    owner: str
    source: str
    target: str
    alternatives: tuple[str, ...]
    strategy: str
    reason: str
    words: str
    chain: Count
    needs: tuple[str, ...]
    this_cycle: bool
    deferred_by: str


class NodeDocument(_Part, frozen=True, kw_only=True):
    """A node before and after the plan."""

    name: str
    before: Percentages
    after: Percentages
    role: str
    unknown: str
    not_a_source: tuple[ReasonDocument, ...]
    not_a_target: tuple[ReasonDocument, ...]
    state: tuple[ReasonDocument, ...]


class RemovalDocument(_Part, frozen=True, kw_only=True):
    """A pod that is removed without a target."""

    pod: str
    uid: str
    node: str
    strategy: str
    words: str
    deferred_by: str


class BoundDocument(_Part, frozen=True, kw_only=True):
    """How the lower bound is known."""

    proof: str
    words: str


class UnmetDocument(_Part, frozen=True, kw_only=True):
    """A goal that the plan does not meet."""

    goal: str
    strategy: str
    why: str
    reason: ReasonDocument


class OptOutDocument(_Part, frozen=True, kw_only=True):
    """Pods of one namespace that keep a goal from being met by having opted out of moves."""

    goal: str
    namespace: str
    reason: str
    pods: tuple[str, ...]


class RefusedDocument(_Part, frozen=True, kw_only=True):
    """A pod that stays, and every reason."""

    pod: str
    node: str
    reasons: tuple[ReasonDocument, ...]


class StayingDocument(_Part, frozen=True, kw_only=True):
    """How many pods stay for one reason; each pod counts once, for its first reason."""

    reason: str
    pods: Count


class UsageDocument(_Part, frozen=True, kw_only=True):
    """Where the load in a plan comes from."""

    configured: str
    source: str
    without_metrics: bool
    why: str


class PlanDocument(_Part, frozen=True, kw_only=True):
    """A plan."""

    plan_id: str
    fingerprint: str
    strategies: tuple[str, ...]
    goals: tuple[str, ...]
    evictions: Count
    this_cycle: Count
    deferred: Count
    lower_bound: Count
    bound: BoundDocument
    lower_bound_all: Count
    bound_all: BoundDocument
    priority_policy: str
    fewest_evictions: Count | None
    moves: tuple[MoveDocument, ...]
    nodes: tuple[NodeDocument, ...]
    removals: tuple[RemovalDocument, ...]
    unmet: tuple[UnmetDocument, ...]
    refused: tuple[RefusedDocument, ...]
    staying: tuple[StayingDocument, ...]
    opt_outs: tuple[OptOutDocument, ...]
    usage: UsageDocument
    notes: tuple[str, ...]
    evaluations: Count


def document(plan: Plan) -> PlanDocument:
    """Return the plan as it is written for machines."""
    this_cycle = sum(move.this_cycle for move in plan.moves)
    return PlanDocument(
        plan_id=plan.plan_id,
        fingerprint=plan.fingerprint,
        strategies=tuple(map(str, plan.strategies)),
        goals=plan.goals,
        evictions=len(plan.moves),
        this_cycle=this_cycle,
        deferred=len(plan.moves) - this_cycle,
        lower_bound=plan.lower_bound.evictions,
        bound=_bound(plan.lower_bound),
        lower_bound_all=plan.lower_bound_all.evictions,
        bound_all=_bound(plan.lower_bound_all),
        priority_policy=plan.priority_policy,
        fewest_evictions=plan.fewest_evictions,
        moves=tuple(map(move_document, plan.moves)),
        nodes=tuple(map(_node, plan.nodes)),
        removals=tuple(map(_removal, plan.removals)),
        unmet=tuple(map(_unmet, plan.unmet)),
        refused=tuple(map(_refused, plan.refused)),
        staying=tuple(StayingDocument(reason=s.reason, pods=s.pods) for s in plan.staying),
        opt_outs=tuple(map(_opt_out, plan.opt_outs)),
        usage=_usage(plan.source),
        notes=plan.notes,
        evaluations=plan.evaluations,
    )


def as_json(plan: Plan) -> str:
    """Return the plan as one line of JSON."""
    return visible_json(msgspec.json.encode(document(plan)).decode())


def schema() -> str:
    """Return the JSON Schema of the document."""
    made: dict[str, Any] = msgspec.json.schema(PlanDocument)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    return json.dumps(head | made, indent=2) + "\n"


def _bound(bound: Bound) -> BoundDocument:
    return BoundDocument(proof=bound.proof, words=bound.message)


def move_document(move: Move) -> MoveDocument:
    """Return one move of a plan."""
    return MoveDocument(
        pod=move.pod,
        uid=move.uid,
        owner=move.owner,
        source=move.source,
        target=move.target,
        alternatives=move.alternatives,
        strategy=move.strategy,
        reason=move.reason,
        words=move.message,
        chain=move.chain,
        needs=move.needs,
        this_cycle=move.this_cycle,
        deferred_by=move.deferred_by,
    )


def _node(node: NodePlan) -> NodeDocument:
    return NodeDocument(
        name=node.name,
        before=_percentages(node.before),
        after=_percentages(node.after),
        role=node.role,
        unknown=node.unknown,
        not_a_source=_reasons(node.source_refusals),
        not_a_target=_reasons(node.target_refusals),
        state=_reasons(node.state),
    )


def _usage(choice: SourceChoice) -> UsageDocument:
    return UsageDocument(
        configured=choice.configured,
        source=choice.asked,
        without_metrics=choice.without_metrics,
        why=choice.why,
    )


def _removal(removal: Removal) -> RemovalDocument:
    return RemovalDocument(
        pod=removal.key,
        uid=removal.pod,
        node=removal.node,
        strategy=removal.strategy,
        words=removal.message,
        deferred_by=removal.deferred_by,
    )


def _unmet(unmet: Unmet) -> UnmetDocument:
    return UnmetDocument(
        goal=unmet.goal, strategy=unmet.strategy, why=unmet.why.message, reason=_reason(unmet.why)
    )


def _opt_out(found: OptOut) -> OptOutDocument:
    return OptOutDocument(
        goal=found.goal, namespace=found.namespace, reason=found.reason, pods=found.pods
    )


def _refused(refused: Refused) -> RefusedDocument:
    return RefusedDocument(pod=refused.pod, node=refused.node, reasons=_reasons(refused.reasons))


def _reasons(refusals: Sequence[Refusal]) -> tuple[ReasonDocument, ...]:
    return tuple(map(_reason, refusals))


def _reason(refusal: Refusal) -> ReasonDocument:
    return ReasonDocument(name=refusal.name, words=refusal.message, for_good=refusal.permanent)


def _percentages(level: Level) -> Percentages:
    return Percentages(
        cpu=_rounded(level.cpu),
        memory=_rounded(level.memory),
        further={name: _rounded(percent) for name, percent in level.further},
    )


def _rounded(percent: float) -> float | None:
    # NaN, which JSON does not know, equals nothing, not even itself.
    return round(percent, 1) if percent == percent else None
