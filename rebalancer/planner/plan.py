# SPDX-License-Identifier: Apache-2.0
"""The plan: a value that can be printed, stored and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from common.api.migrations import Purpose
from common.cluster.records import NodeName, PodUid
from common.config import PriorityPolicy, Strategy
from common.usage import MEASURED, SourceChoice
from rebalancer.goals import Removal
from rebalancer.refusals import Refusal


class Level(msgspec.Struct, frozen=True, gc=False):
    """How much of a node is used, in percent of its allocatable."""

    cpu: float
    memory: float
    further: tuple[tuple[str, float], ...] = ()
    """The same of further resources, by name; NaN where a node has none, or it is not known."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One eviction, and where its replacement is to run."""

    pod: str
    """namespace/name"""
    uid: PodUid
    owner: str
    """What users call the workload: `Deployment shop/web`; empty for a bare pod."""
    source: NodeName
    target: NodeName
    alternatives: tuple[NodeName, ...]
    """Next best targets, best first."""
    strategy: Strategy
    reason: str
    """A `MoveReason`."""
    message: str
    chain: int
    """Moves with one number belong together: all of them or none."""
    needs: tuple[PodUid, ...] = ()
    """Pods that must be gone from the target before this one is evicted."""
    cpu_milli: float
    mem_bytes: float
    this_cycle: bool
    deferred_by: str = ""
    """Which limit puts it off; empty for this cycle's moves."""
    surge: bool = False
    """The replacement is Ready before the pod leaves: its workload gets one more replica."""
    relieves: bool = False
    """The whole plan brings the source under its ceiling: then no move has to gain by itself.

    Or it brings a clearly uneven pool within its spread: then a move has to gain little.
    """

    @property
    def purpose(self) -> Purpose:
        """Return what the pod is moved for."""
        return Purpose.of(self.strategy, self.reason)


Chain = tuple[Move, ...]
"""Moves that belong together: all of them are carried out, or none."""
Objection = Callable[[Move, NodeName], Refusal | None]
"""Returns why a move may not go to a node now, however much it would gain."""


def chain_purpose(chain: Iterable[Move]) -> Purpose:
    """Return what a chain is for: one move that drains a node frees all from limits for load."""
    drains = any(move.purpose is Purpose.MAINTENANCE for move in chain)
    return Purpose.MAINTENANCE if drains else Purpose.LOAD


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A node before and after."""

    name: NodeName
    before: Level
    after: Level
    role: str
    """`source`, `target`, `both` or empty."""
    source_refusals: tuple[Refusal, ...] = ()
    target_refusals: tuple[Refusal, ...] = ()
    state: tuple[Refusal, ...] = ()
    """What else is known of it and closes nothing to it, such as a resize that waits."""
    unknown: str = ""


class Unmet(msgspec.Struct, frozen=True, kw_only=True):
    """A goal that this plan does not meet, and the shortest reason."""

    goal: str
    """`n7 below 80 % CPU`"""
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
    """A pod that stays, and why."""

    pod: str
    uid: PodUid
    node: NodeName
    reasons: tuple[Refusal, ...]


class Staying(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods stay for one reason."""

    reason: str
    pods: int


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The fewest evictions that could be enough, and how that is known."""

    evictions: int
    proof: str
    """`ceilings`, `spread`, `empty`, `relocate`, `topology` or `none`: which certificate it is."""
    message: str


NO_BOUND: Final = Bound(evictions=0, proof="none", message="no goal requires that a pod moves")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and everything that a reader may ask about it."""

    plan_id: str
    fingerprint: str
    """Of the snapshot and the configuration: equal fingerprints give equal plans."""
    strategies: tuple[Strategy, ...]
    goals: tuple[str, ...]
    moves: tuple[Move, ...]
    lower_bound: Bound
    """For the goals that the plan meets; the only one that its evictions may be compared with."""
    nodes: tuple[NodePlan, ...]
    unmet: tuple[Unmet, ...]
    refused: tuple[Refused, ...]
    """Of nodes that had to give; with `--all` of all nodes."""
    staying: tuple[Staying, ...] = ()
    """All pods that stay, counted by their first reason."""
    source: SourceChoice = MEASURED
    """Where the load in it comes from."""
    opt_outs: tuple[OptOut, ...] = ()
    """Pods that keep goals from being met by having opted out."""
    notes: tuple[str, ...] = ()
    """What else a reader should know: resting, waiting for observations, no extender."""
    kept_empty: tuple[NodeName, ...] = ()
    """Nodes that `Consolidation` empties, or has emptied and keeps empty."""
    removals: tuple[Removal, ...] = ()
    """Pods that are removed without a target."""
    evaluations: int = 0
    lower_bound_all: Bound = NO_BOUND
    """For all goals that are stated, as far as some plan could meet them."""
    priority_policy: PriorityPolicy = PriorityPolicy.LOW_FIRST
    fewest_evictions: int | None = None
    """What `priorityPolicy: FewestEvictions` would need for these goals; None if not known."""
