# SPDX-License-Identifier: Apache-2.0
"""Which moves of a plan are carried out now, and why the others are not.

A plan is whole and shows everything; only this cycle's moves of strategies that may act become
Migrations. Chains are never split: if one move stays, all of its chain stay.

Moves that are under way would count twice if a new plan did not know of them: their source seems
hotter than it will be, their target cooler. So nodes rest while an open Migration touches them: a
move for load goes neither from nor to such a node, and one that levels a pool waits until the
whole pool is at rest. Moves that drain a node do not rest, because one that waits long would stop
all others; for them, pods on their way to a node count as arrived there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from common.api.contract import kept_empty
from common.api.migrations import MoveReason, Purpose, Step
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName
from common.config import Mode, RebalancerConfiguration, Strategy
from common.load import Belief, LoadView
from rebalancer.evictability import was_carried_out
from rebalancer.planner import Move, Plan
from rebalancer.planner.plan import Chain, Objection, chain_purpose
from rebalancer.projection import nodes_of
from rebalancer.refusals import Reason, Refusal
from rebalancer.rules import ClusterRules


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The chains of a plan that are carried out in this cycle."""

    maintenance: tuple[Chain, ...] = ()
    """Chains that do not wait for newer samples."""
    load: tuple[Chain, ...] = ()
    notes: tuple[str, ...] = ()
    """Why the other moves of this cycle are not carried out."""


def choose(
    plan: Plan,
    config: RebalancerConfiguration,
    *,
    rules: ClusterRules | None = None,
    dry_run: bool = False,
    refusal: Refusal | None = None,
    paused: Refusal | None = None,
) -> Choice:
    """Return the chains to carry out; `refusal` stands against every move for load.

    `paused` stands against every move. Without `rules`, only the configuration itself says which
    strategies act.
    """
    found = chains_of(move for move in plan.moves if move.this_cycle)
    if not found:
        return Choice(notes=_refused_note(refusal))
    if stopped := _stopped(config, paused, dry_run=dry_run):
        return Choice(notes=(*_refused_note(refusal), stopped))
    acting = [chain for chain in found if not _observed(chain, config, rules)]
    load = tuple(chain for chain in acting if chain_purpose(chain) is Purpose.LOAD)
    return Choice(
        maintenance=tuple(chain for chain in acting if chain_purpose(chain) is Purpose.MAINTENANCE),
        load=() if refusal is not None else load,
        notes=(*_refused_note(refusal), *_observing(found, config, rules)),
    )


def set_aside(choice: Choice, objections: Sequence[Objection]) -> Choice:
    """Leave out the chains for load that have to rest whichever target they get.

    The cycle does not wait for them, so the next plan comes sooner.
    """
    against = [(chain, _first(chain, objections)) for chain in choice.load]
    notes = [f"{chain[0].pod} waits: {why.message}" for chain, why in against if why is not None]
    return msgspec.structs.replace(
        choice,
        load=tuple(chain for chain, why in against if why is None),
        notes=(*choice.notes, *notes),
    )


def _first(chain: Chain, objections: Sequence[Objection]) -> Refusal | None:
    # With the source as the target, an objection can only be to the pod or to the source.
    found = (objects(move, move.source) for move in chain for objects in objections)
    return next((why for why in found if why is not None), None)


def chains_of(moves: Iterable[Move]) -> tuple[Chain, ...]:
    """Return the moves that belong together, in the order of the plan."""
    found: dict[int, list[Move]] = {}
    for move in moves:
        found.setdefault(move.chain, []).append(move)
    return tuple(tuple(chain) for chain in found.values())


def touched_by(chains: Iterable[Chain]) -> frozenset[NodeName]:
    """Return the nodes that chains move pods away from or onto."""
    return frozenset(n for chain in chains for move in chain for n in (move.source, move.target))


def _stopped(config: RebalancerConfiguration, paused: Refusal | None, *, dry_run: bool) -> str:
    if dry_run:
        return "nothing is moved: this is a dry run"
    if config.paused:
        return "nothing is moved: paused is true"
    return f"nothing is moved: {paused.message}" if paused is not None else ""


def _observed(
    chain: Chain, config: RebalancerConfiguration, rules: ClusterRules | None
) -> list[Strategy]:
    return [m.strategy for m in chain if mode_of(m, config, rules) is Mode.OBSERVE]


def mode_of(move: Move, config: RebalancerConfiguration, rules: ClusterRules | None) -> Mode:
    """Return whether a move is carried out, by the rules for its node and its namespace."""
    if rules is None:
        return config.mode_of(move.strategy)
    namespace = move.pod.partition("/")[0]
    return rules.mode_of(move.strategy, move.source, namespace).mode


def _observing(
    chains: Sequence[Chain], config: RebalancerConfiguration, rules: ClusterRules | None
) -> tuple[str, ...]:
    found = sorted({strategy for chain in chains for strategy in _observed(chain, config, rules)})
    return tuple(f"nothing is moved for {strategy}: its mode is observe" for strategy in found)


def _refused_note(refusal: Refusal | None) -> tuple[str, ...]:
    if refusal is None:
        return ()
    why = refusal.message.removeprefix("nothing is moved: ")
    return (f"nothing is moved for load: {why}",)


class BusyNodes(msgspec.Struct, frozen=True):
    """Nodes that open Migrations touch."""

    touched: frozenset[NodeName] = frozenset()
    pools: Mapping[str, tuple[NodeName, ...]] = {}

    @classmethod
    def of(
        cls,
        migrations: Iterable[MigrationRecord],
        pools: Mapping[str, tuple[NodeName, ...]],
    ) -> BusyNodes:
        """Return the nodes that these Migrations touch while they are open."""
        return cls(nodes_of(migration for migration in migrations if migration.open), pools)

    def __call__(self, move: Move, target: NodeName) -> Refusal | None:
        if move.purpose is Purpose.MAINTENANCE:
            return None
        for name in (move.source, target):
            if name in self.touched:
                return _busy(name)
        return self._pool_at_rest(move) if move.reason == MoveReason.SPREAD else None

    def _pool_at_rest(self, move: Move) -> Refusal | None:
        pool = next((names for names in self.pools.values() if move.source in names), ())
        moving = self.touched.intersection(pool)
        return _busy(min(moving)) if moving else None


def _busy(node: NodeName) -> Refusal:
    return Reason.NODE_BUSY.refusal(node=node)


def not_migrating(
    migrations: Mapping[str, MigrationRecord], config: RebalancerConfiguration, now_s: float
) -> Objection:
    """Object to pods that are being moved, and to those whose last move failed just now."""
    known = {migration.pod_uid: migration for migration in migrations.values()}

    def objection(move: Move, _: NodeName) -> Refusal | None:
        return in_the_way(known.get(move.uid), config, now_s, purpose=move.purpose)

    return objection


def in_the_way(
    migration: MigrationRecord | None,
    config: RebalancerConfiguration,
    now_s: float,
    *,
    purpose: Purpose,
) -> Refusal | None:
    """Return why a pod may not have another Migration than this one now.

    The replacement of an evicted pod has another uid, so only Migrations that ended before the
    eviction are in the way. The breaker does not count these, so they can be replaced.
    """
    if migration is None:
        return None
    if migration.open:
        return Reason.MIGRATING.refusal()
    if migration.withdrawn or was_carried_out(migration):
        return Reason.MIGRATED.refusal()
    if migration.replacement_name and not migration.done(Step.CLEANED_UP):
        # A new Migration takes the place of this one, and nothing else names the copy.
        return Reason.MIGRATING.refusal("copy left")
    for_load = purpose is Purpose.LOAD
    rest = config.workload_cooldown if for_load else config.rescheduling_interval
    ended_s = migration.created_s if migration.finished_s is None else migration.finished_s
    if now_s - ended_s >= rest.seconds:
        return None
    return Reason.MIGRATION_FAILED.refusal(ago_s=now_s - ended_s)


def only_marked(belief: Belief) -> Objection:
    """Object to emptying nodes that are not marked: extenders would fill them again."""
    nodes = belief.snapshot.nodes

    def objection(move: Move, _: NodeName) -> Refusal | None:
        view = nodes.get(move.source)
        if move.reason != MoveReason.CONSOLIDATION or view is None:
            return None
        if kept_empty(view.node.annotations):
            return None
        return Reason.KEPT_EMPTY.refusal("not marked", node=move.source)

    return objection


def stale_nodes(
    nodes: Collection[NodeName], before: LoadView, now: LoadView
) -> frozenset[NodeName]:
    """Return the nodes without a newer sample than before; none where nothing is measured."""
    return frozenset(name for name in nodes if not _is_newer(name, before, now))


def _is_newer(name: NodeName, before: LoadView, now: LoadView) -> bool:
    old, new = before.nodes.get(name), now.nodes.get(name)
    if new is None or not new.known:
        return False
    # Requests are always up to date and have no sample time.
    if new.sample_end_s is None or old is None or old.sample_end_s is None:
        return True
    return new.sample_end_s > old.sample_end_s


def only_with_newer_samples(before: LoadView, now: LoadView) -> Objection:
    """Object to nodes of moves for load that have no newer sample."""

    def objection(move: Move, target: NodeName) -> Refusal | None:
        stale = stale_nodes((move.source, target), before, now)
        if move.purpose is Purpose.MAINTENANCE or not stale:
            return None
        return Reason.NO_NEWER_SAMPLE.refusal(node=min(stale))

    return objection
