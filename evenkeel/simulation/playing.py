# SPDX-License-Identifier: Apache-2.0
"""The loop played in memory: the same decisions on the same cluster, with a clock of its own.

Every cycle decides as the loop does, with consecutive observations, limits, validation on the
newest load and cooldowns, and carries its moves out at once: each pod goes to its planned node and
uses there what it used before. Nothing else in the cluster changes. Pure.

While nothing happens, time jumps to when something could: pods and nodes have become old enough,
or a cooldown has ended. The play is over when no such time is left.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Final

import msgspec

from common.api.migrations import (
    Migration,
    MigrationStatus,
    Outcome,
    Phase,
    ReplacementRef,
    migration_name,
)
from common.api.objects import ObjectMeta
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.config import Mode, RebalancerConfiguration, Rules
from common.load import Belief, LoadView
from rebalancer.decision import Decider
from rebalancer.launcher import spec_of
from rebalancer.planner import Move, Plan
from rebalancer.planner.lookahead import cluster_after
from rebalancer.selection import choose

QUIET: Final = 3
"""After this many cycles in a row in which nothing happens or waits, nothing will at this time."""


class Moment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster after one cycle."""

    after_s: float
    evictions: int
    """Since the beginning."""
    hot: int
    """Nodes above their ceiling."""
    cpu_spread: float | None
    """Points between the highest and the lowest node; None where fewer than two are known."""
    memory_spread: float | None
    highest_cpu: float | None


class Play(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of a cluster."""

    configuration: str
    moments: tuple[Moment, ...]
    unmet: tuple[str, ...]
    ended: bool
    """Nothing more would be moved; otherwise the time was over."""

    @property
    def last(self) -> Moment:
        return self.moments[-1]


class _Stage:
    """The cluster as the moves so far have left it."""

    def __init__(self, belief: Belief, config: RebalancerConfiguration, now_s: float) -> None:
        self.belief = belief
        self.config = config
        self.now_s = now_s
        self.evictions = 0
        self.moved_s: float | None = None
        self._shared = Interner()

    def sample(self) -> None:
        """Measure all nodes again: they use what they used."""
        load = copy.copy(self.belief.load)
        load.nodes = {
            name: msgspec.structs.replace(node, sample_end_s=self.now_s)
            if node.sample_end_s is not None
            else node
            for name, node in load.nodes.items()
        }
        kept = {
            name: record
            for name, record in self.belief.snapshot.migrations.items()
            if record.finished_s is None
            or self.now_s - record.finished_s < self.config.keep_finished.seconds
        }
        snapshot = msgspec.structs.replace(self.belief.snapshot, migrations=kept)
        self.belief = self.belief._replace(snapshot=snapshot, load=load)

    def carry_out(self, moves: Sequence[Move], plan_id: str) -> None:
        """Let every pod run on its planned node, and remember the moves."""
        made = {}
        for move in moves:
            record = self._record(move, plan_id)
            if record is not None:
                made[record.name] = record
        goes = {move.uid: move.target for move in moves}
        snapshot, load = cluster_after(self.belief.snapshot, self.belief.load, goes)
        known = {**snapshot.migrations, **made}
        snapshot = msgspec.structs.replace(snapshot, migrations=known)
        self.belief = self.belief._replace(snapshot=snapshot, load=load)
        self.evictions += len(moves)
        self.moved_s = self.now_s

    def opens_s(self) -> float | None:
        """Return the next time at which a pod or node may take part that may not now."""
        config, snapshot = self.config, self.belief.snapshot
        nodes = [view.node.created_s for view in snapshot.nodes.values()]
        pods = [pod.created_s for pod in snapshot.pods.values()]
        moved = [] if self.moved_s is None else [self.moved_s]
        waits = (
            (nodes, config.min_node_age),
            (pods, config.min_pod_age),
            (moved, config.workload_cooldown),
            (moved, config.lineage_cooldown),
        )
        ends = (max(since) + wait.seconds for since, wait in waits if since)
        return min((end for end in ends if end > self.now_s), default=None)

    def _record(self, move: Move, plan_id: str) -> MigrationRecord | None:
        """Return the Migration of a move that went as planned."""
        spec = spec_of(move, plan_id, self.belief, self.config, self.now_s)
        if spec is None:
            return None
        now = datetime.fromtimestamp(self.now_s, UTC)
        uid = f"{move.uid}-{int(self.now_s)}"
        wire = Migration(
            metadata=ObjectMeta(
                name=migration_name(move.uid), uid=uid, resource_version="1", creation_timestamp=now
            ),
            spec=spec,
            status=MigrationStatus(
                phase=Phase.COMPLETED,
                outcome=Outcome.AS_PLANNED,
                started_at=now,
                evicted_at=now,
                finished_at=now,
                replacement=ReplacementRef(name=spec.pod.name, uid=spec.pod.uid, node=move.target),
            ),
        )
        return migration_record(wire, self._shared)


def play(
    belief: Belief, config: RebalancerConfiguration, *, now_s: float, for_s: float, name: str
) -> Play:
    """Play the loop with a configuration; every enabled strategy acts."""
    config = config.model_copy(update={"mode": Mode.ACT, "modes": {}, "paused": False})
    stage, decider = _Stage(belief, config, now_s), Decider(config)
    moments = [_moment(stage, 0.0)]
    quiet, start_s = 0, now_s
    unmet: tuple[str, ...] = ()
    while stage.now_s - start_s < for_s:
        if quiet >= QUIET:
            opens_s = stage.opens_s()
            if opens_s is None or opens_s - start_s >= for_s:
                break
            stage.now_s, quiet = opens_s, 0
        stage.now_s += config.rescheduling_interval.seconds
        stage.sample()
        decision = decider.decide(stage.belief, stage.now_s)
        moves = _carried_out(stage, decider, decision.plan)
        unmet = tuple(f"{each.goal}: {each.why.message}" for each in decision.plan.unmet)
        busy = bool(moves or decision.assessment.waiting)
        quiet = 0 if busy else quiet + 1
        moments.append(_moment(stage, stage.now_s - start_s))
    return Play(configuration=name, moments=tuple(moments), unmet=unmet, ended=quiet >= QUIET)


def _carried_out(stage: _Stage, decider: Decider, plan: Plan) -> list[Move]:
    """Validate what a plan starts in this cycle, and carry it out."""
    choice = choose(plan, stage.config)
    done: list[Move] = []
    for chains in (choice.maintenance, choice.load):
        if not chains:
            continue
        held = decider.revalidate(chains, stage.belief, stage.now_s)
        moves = [move for chain in held.chains for move in chain]
        stage.carry_out(moves, plan.plan_id)
        decider.moved({n for move in moves for n in (move.source, move.target)})
        done += moves
    return done


def _moment(stage: _Stage, after_s: float) -> Moment:
    load, rules = stage.belief.load, Rules(stage.config)
    cpu, memory = _levels(load)
    known = [node for node in load.nodes.values() if node.known]
    views = stage.belief.snapshot.nodes
    limits = {node.name: rules.of_node(views[node.name].node.labels).thresholds for node in known}
    hot = sum(
        node.cpu_percent > limits[node.name].cpu or node.mem_percent > limits[node.name].memory
        for node in known
    )
    return Moment(
        after_s=after_s,
        evictions=stage.evictions,
        hot=hot,
        cpu_spread=_spread(cpu),
        memory_spread=_spread(memory),
        highest_cpu=round(max(cpu), 1) if cpu else None,
    )


def _levels(load: LoadView) -> tuple[list[float], list[float]]:
    known = [node for node in load.nodes.values() if node.known]
    cpu = [node.cpu_percent for node in known if isfinite(node.cpu_percent)]
    return cpu, [node.mem_percent for node in known if isfinite(node.mem_percent)]


def _spread(levels: Iterable[float]) -> float | None:
    found = list(levels)
    return round(max(found) - min(found), 1) if len(found) > 1 else None
