"""The plan: a value that can be printed, stored and compared."""

from __future__ import annotations

import msgspec

from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from common.usage import MEASURED, SourceChoice
from rebalancer.reasons import Refusal


class Level(msgspec.Struct, frozen=True, gc=False):
    """How much of a node is used, in percent of its allocatable."""

    cpu: float
    memory: float


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One eviction, and where its replacement is to run."""

    pod: str
    """namespace/name"""
    uid: PodUid
    owner: str
    """What a person would name: `Deployment shop/web`; empty for a bare pod."""
    source: NodeName
    target: NodeName
    alternatives: tuple[NodeName, ...]
    """Next best targets, best first."""
    strategy: Strategy
    reason: str
    """CamelCase code of why: `AboveCeiling`, `Spread`, `Maintenance`, `MakesRoom`."""
    words: str
    chain: int
    """Moves with one number belong together: all of them or none."""
    needs: tuple[PodUid, ...] = ()
    """Pods that must be gone from the target before this one is evicted."""
    cpu_milli: float
    mem_bytes: float
    this_cycle: bool
    deferred_by: str = ""
    """Which limit puts it off; empty for this cycle's moves."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A node before and after."""

    name: NodeName
    before: Level
    after: Level
    role: str
    """`source`, `target`, `both` or empty."""
    source_refusals: tuple[Refusal, ...] = ()
    target_refusals: tuple[Refusal, ...] = ()
    unknown: str = ""


class Unmet(msgspec.Struct, frozen=True, kw_only=True):
    """A goal that this plan does not meet, and the smallest reason."""

    goal: str
    """`AtMost n7 cpu 80 %`"""
    strategy: Strategy
    why: Refusal


class OptOut(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one namespace that would be moved for a goal, if they had not opted out."""

    goal: str
    namespace: str
    reason: str
    """The gate that kept them: `ReschedulingDisabled`, `NotSafeToEvict`, …"""
    pods: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a node that had to give, and why it stays."""

    pod: str
    uid: PodUid
    node: NodeName
    reasons: tuple[Refusal, ...]


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """How few evictions could do, and how that is known."""

    evictions: int
    proof: str
    """`ceilings`, `spread`, `empty`, `exact` or `none`: which certificate gave the number."""
    words: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and everything that a person may ask about it."""

    plan_id: str
    fingerprint: str
    """Of the snapshot and the settings: equal fingerprints give equal plans."""
    strategies: tuple[Strategy, ...]
    goals: tuple[str, ...]
    moves: tuple[Move, ...]
    lower_bound: Bound
    nodes: tuple[NodePlan, ...]
    unmet: tuple[Unmet, ...]
    refused: tuple[Refused, ...]
    source: SourceChoice = MEASURED
    """Where the load in it comes from."""
    opt_outs: tuple[OptOut, ...] = ()
    """Who keeps goals from being met by having asked not to be moved."""
    notes: tuple[str, ...] = ()
    """What else a reader should know: resting, waiting for observations, no extender."""
    evaluations: int = 0
