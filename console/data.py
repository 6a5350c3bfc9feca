# SPDX-License-Identifier: Apache-2.0
"""What the console shows, and the protocol through which it gets it.

The rebalancer and `evenkeel ui` implement `ConsoleData`; the console knows neither. Documents are
frozen, carry plain values and become JSON as they are. Names in them come from the cluster and may
contain anything: they are data, and only `console.security` and the pages decide how they look.

A percentage is percent of a node's allocatable. None means unknown, which is never shown as zero.
Times are seconds since the epoch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of everything that is shown."""


class NodeState(StrEnum):
    """What a cell says about its node beside its load."""

    READY = "ready"
    UNKNOWN = "unknown"
    """Its load is not known; `note` says why."""
    CORDONED = "cordoned"
    MAINTENANCE = "maintenance"
    NOT_READY = "notReady"


class PlanRole(StrEnum):
    """What the plan does with a node."""

    NONE = ""
    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"


class NodeCell(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One node of the cluster page; written as an array, because there may be thousands."""

    name: str
    pool: str
    zone: str
    state: NodeState
    role: PlanRole
    cpu: float | None
    memory: float | None
    cpu_requests: float | None
    memory_requests: float | None
    cpu_after: float | None
    """After the plan; equal to `cpu` where it moves nothing."""
    memory_after: float | None
    pods: int
    note: str
    """Why the load is unknown, or what is too high beside CPU and memory; else empty."""
    cpu_ceiling: float | None = None
    """What the rule of its pool allows; None where that is the general ceiling."""
    memory_ceiling: float | None = None


class Ceilings(Document, frozen=True, kw_only=True):
    """What the configuration asks for, in percent."""

    cpu: float
    memory: float
    imbalance: float


class ClusterDocument(Document, frozen=True, kw_only=True):
    """All nodes, now and after the plan."""

    at_s: float
    """When the newest sample was taken, or when this was read if nothing is measured."""
    source: str
    """Where load comes from: `metrics-server`, `prometheus`, `requests`."""
    trouble: str
    """Why usage is not read; empty while it is."""
    ceilings: Ceilings
    evictions: int | None
    """Of the plan; None while there is none."""
    nodes: tuple[NodeCell, ...]


class LoadMoment(msgspec.Struct, frozen=True, kw_only=True):
    """How loaded nodes are at one moment, in percent: what the past is made of."""

    at_s: float
    names: tuple[str, ...]
    cpu: tuple[float | None, ...]
    memory: tuple[float | None, ...]


class Reason(Document, frozen=True, kw_only=True):
    """Why something is not done."""

    name: str
    words: str
    for_good: bool = False


class PodOnNode(Document, frozen=True, kw_only=True):
    """A pod of the node page."""

    pod: str
    """namespace/name"""
    owner: str
    """`Deployment web`; empty for a bare pod."""
    cpu_milli: float
    memory_bytes: float
    cpu: float | None
    """Percent of the node."""
    memory: float | None
    basis: str
    """What its load rests on: `measured`, `siblings`, …"""
    priority: int
    reasons: tuple[Reason, ...]
    """Why it may not be moved for load; empty if it may."""
    target: str = ""
    """Where the plan or a Migration takes it; empty if it stays."""


class StepTime(Document, frozen=True, kw_only=True):
    """One step of a Migration."""

    name: str
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str
    words: str
    at_s: float


class UseOfNodes(Document, frozen=True, kw_only=True):
    """Source and target of a move, in percent."""

    source_cpu: float | None = None
    source_memory: float | None = None
    target_cpu: float | None = None
    target_memory: float | None = None


class MigrationRow(Document, frozen=True, kw_only=True):
    """A move, open or finished."""

    name: str
    pod: str
    """namespace/name"""
    source: str
    target: str
    strategy: str
    reason: str
    phase: str
    outcome: str
    words: str
    replacement: str
    """namespace/name of the pod that took its place; empty while there is none."""
    landed_on: str
    created_s: float
    started_s: float | None
    evicted_s: float | None
    finished_s: float | None
    due_s: float
    attempts: int
    steps: tuple[StepTime, ...]
    predicted: UseOfNodes | None
    actual: UseOfNodes | None

    @property
    def open(self) -> bool:
        return self.phase not in ("Completed", "Failed")


class MigrationsDocument(Document, frozen=True, kw_only=True):
    """Moves, open ones first, then newest first."""

    rows: tuple[MigrationRow, ...]
    left_out: int
    """Older ones that are known and not listed."""
    why_none: str = ""
    """Why Migrations cannot be read; empty if they can."""


class NodeDocument(Document, frozen=True, kw_only=True):
    """One node."""

    at_s: float
    cell: NodeCell
    ceilings: Ceilings
    cpu_milli: float
    """Allocatable."""
    memory_bytes: float
    created_s: float
    taints: tuple[str, ...]
    labels: dict[str, str]
    not_a_source: tuple[Reason, ...]
    not_a_target: tuple[Reason, ...]
    pods: tuple[PodOnNode, ...]
    """Largest first."""
    pods_left_out: int
    moves: tuple[MigrationRow, ...]
    """Of which this node is source, target or where the replacement landed."""


class PlannedMove(Document, frozen=True, kw_only=True):
    """One eviction of the plan."""

    pod: str
    owner: str
    source: str
    target: str
    alternatives: tuple[str, ...]
    strategy: str
    reason: str
    words: str
    chain: int
    this_cycle: bool
    deferred_by: str
    cpu_milli: float
    memory_bytes: float


class UnmetGoal(Document, frozen=True, kw_only=True):
    """A goal that the plan does not meet."""

    goal: str
    strategy: str
    reason: Reason


class Staying(Document, frozen=True, kw_only=True):
    """Pods that stay for one reason."""

    reason: Reason
    count: int
    pods: tuple[str, ...]
    """Some of them, at most 50."""


class PlanDocument(Document, frozen=True, kw_only=True):
    """The last plan."""

    plan_id: str
    made_s: float
    strategies: tuple[str, ...]
    goals: tuple[str, ...]
    evictions: int
    this_cycle: int
    deferred: int
    lower_bound: int
    bound_words: str
    moves: tuple[PlannedMove, ...]
    touched: tuple[NodeCell, ...]
    """The nodes that the plan takes pods from or gives pods to, and those with an unmet goal."""
    ceilings: Ceilings
    unmet: tuple[UnmetGoal, ...]
    staying: tuple[Staying, ...]
    """Most pods first."""
    notes: tuple[str, ...]


class PlanAnswer(Document, frozen=True, kw_only=True):
    """The plan, or why there is none."""

    plan: PlanDocument | None
    why_none: str = ""


class WhyKind(StrEnum):
    """What can be asked about."""

    POD = "pod"
    NODE = "node"
    WORKLOAD = "workload"


class Gate(Document, frozen=True, kw_only=True):
    """One check, in the order in which they are made."""

    name: str
    passed: bool
    words: str
    for_good: bool = False
    """Of a gate that is not passed: waiting does not help."""


class Fact(Document, frozen=True, kw_only=True):
    """A line of an answer: `Load`, `210m CPU, 512 MiB`."""

    label: str
    text: str
    kind: WhyKind | None = None
    """Set where `name` can be asked about, so that the page links to it."""
    name: str = ""


class WhyDocument(Document, frozen=True, kw_only=True):
    """The answer to `why`; the command prints the same."""

    kind: WhyKind
    name: str
    answer: str
    """One or two sentences."""
    good: bool | None
    """Whether it may be moved, or takes part; None where that is no yes or no."""
    facts: tuple[Fact, ...] = ()
    gates: tuple[Gate, ...] = ()
    changes: tuple[str, ...] = ()
    """What would have to change."""
    moves: tuple[MigrationRow, ...] = ()


class Match(Document, frozen=True, kw_only=True):
    """A name that a search found."""

    kind: WhyKind
    name: str


class Pause(Document, frozen=True, kw_only=True):
    """Nothing is evicted while it lasts."""

    by: str
    why: str
    until_s: float | None
    """None: until it is resumed."""


class ExtenderRow(Document, frozen=True, kw_only=True):
    """One extender."""

    name: str
    alive: bool
    behind: int | None
    """How many Migrations it has not acknowledged; None if it has said nothing yet."""
    reported_s: float
    schedulers: tuple[str, ...]
    """Which schedulers call it."""
    words: str = ""
    """What is wrong with it, if anything."""


class BreakerRow(Document, frozen=True, kw_only=True):
    """What stops moves of one purpose."""

    purpose: str
    state: str
    """`closed`, `open` or `half-open`."""
    cause: str
    until_s: float | None = None


class HealthDocument(Document, frozen=True, kw_only=True):
    """How the loop is doing."""

    at_s: float
    version: str
    installed: bool
    leader: str
    """In words: `this process leads`."""
    mode: str
    acts: bool
    strategies: tuple[str, ...]
    pause: Pause | None
    extenders: tuple[ExtenderRow, ...]
    guided: str
    """Whether the schedulers ask an extender, in words."""
    breakers: tuple[BreakerRow, ...]
    source: str
    metrics_age_s: float | None
    trouble: str
    nodes: int
    nodes_unknown: int
    pods: int
    open_moves: int
    finished_moves: int
    as_planned: int
    """Of the finished ones with a replacement: how many landed on their planned node."""
    replaced: int
    """Finished ones with a replacement."""
    ack_lag_s: float | None
    """How long the newest acknowledged Migration waited for all extenders; None if not known."""
    last_plan_s: float | None
    notes: tuple[str, ...]
    pause_unknown: str = ""
    """Why it is not known whether moves are paused; empty if it is."""


class Versions(Document, frozen=True, kw_only=True):
    """Each number changes whenever the documents that it stands for may have changed."""

    cluster: int
    plan: int
    migrations: int
    health: int


class ConsoleData(Protocol):
    """What a program gives to the console.

    Every method is called from the event loop, possibly by several viewers at once. What takes
    longer than a few milliseconds runs in a thread. None of them changes anything.
    """

    def versions(self) -> Versions:
        """Return what has changed so far; called every second, so it must be cheap."""
        ...

    async def load(self) -> LoadMoment | None:
        """Return how loaded nodes are; None while the cluster is not read yet."""
        ...

    async def cluster(self) -> ClusterDocument | None:
        """Return all nodes; None while the cluster is not read yet. Asked only for viewers."""
        ...

    async def node(self, name: str) -> NodeDocument | None:
        """Return one node; None if there is none of that name."""
        ...

    async def plan(self) -> PlanAnswer:
        """Return the last plan."""
        ...

    async def migrations(self) -> MigrationsDocument:
        """Return what moves and moved."""
        ...

    async def why(self, kind: WhyKind, name: str) -> WhyDocument | None:
        """Return the answer; None if there is no such object."""
        ...

    async def search(self, text: str, limit: int) -> tuple[Match, ...]:
        """Return objects whose names contain the text, exact ones and prefixes first."""
        ...

    async def health(self) -> HealthDocument:
        """Return how the loop is doing."""
        ...


@runtime_checkable
class PauseSwitch(Protocol):
    """Implemented in addition by what may pause: only `evenkeel ui`, with the caller's rights."""

    async def pause(self, why: str, for_s: float | None) -> None:
        """Stop all evictions; `ConsoleError` says why that is not possible."""
        ...

    async def resume(self) -> None:
        """Let evictions go on."""
        ...


class ConsoleError(Exception):
    """Something that the person at the page asked for cannot be done; the text says why."""
