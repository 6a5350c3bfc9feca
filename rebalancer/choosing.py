"""Which moves of a plan are to be carried out now, and why the others are not.

A plan is whole and shows everything; only this cycle's moves of strategies that may act
become Migrations. Chains are never torn apart: one move that stays lets all of its chain
stay.

Moves that are under way count twice if a new plan does not know of them: their source looks
hotter than it will be, their target cooler. So nodes rest while an open Migration touches
them: a move for load goes neither from nor to such a node, and one that levels a pool waits
until the whole pool is at rest. Moves that empty a node do not rest, for one that waits long
would stop all others; to them, whatever is on its way to a node counts as arrived there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from common.cluster.migrations import MigrationRecord, Step
from common.cluster.records import NodeName, PodUid
from common.config import Mode, RebalancerConfiguration, Strategy
from common.load import Load, LoadView
from rebalancer.evictability import took_place
from rebalancer.planner import Move, Plan
from rebalancer.reasons import Refusal

MAINTENANCE: Final = "Maintenance"
SPREAD: Final = "Spread"

Objection = Callable[[Move, NodeName], Refusal | None]
"""Says why a move may not go to a node now, whatever it would gain."""
Chain = tuple[Move, ...]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan comes to in this cycle."""

    maintenance: tuple[Chain, ...] = ()
    """Chains that wait for no sample."""
    load: tuple[Chain, ...] = ()
    notes: tuple[str, ...] = ()
    """Why the rest of this cycle's moves stays."""


def choose(
    plan: Plan,
    config: RebalancerConfiguration,
    *,
    dry_run: bool = False,
    refusal: Refusal | None = None,
) -> Choice:
    """Return the chains to carry out; `refusal` stands against every move for load."""
    found = chains_of(move for move in plan.moves if move.this_cycle)
    if not found:
        return Choice(notes=_said(refusal))
    if stopped := _stopped(config, dry_run=dry_run):
        return Choice(notes=(*_said(refusal), stopped))
    acting = [chain for chain in found if not _observed(chain, config)]
    load = tuple(chain for chain in acting if not is_maintenance(chain))
    return Choice(
        maintenance=tuple(chain for chain in acting if is_maintenance(chain)),
        load=() if refusal is not None else load,
        notes=(*_said(refusal), *_observing(found, config)),
    )


def set_aside(choice: Choice, objections: Sequence[Objection]) -> Choice:
    """Leave out the chains for load that have to rest wherever they would go.

    They need not be waited for, and the next plan comes the sooner.
    """
    against = [(chain, _first(chain, objections)) for chain in choice.load]
    notes = [f"{chain[0].pod} waits: {why.words}" for chain, why in against if why is not None]
    return msgspec.structs.replace(
        choice,
        load=tuple(chain for chain, why in against if why is None),
        notes=(*choice.notes, *notes),
    )


def _first(chain: Chain, objections: Sequence[Objection]) -> Refusal | None:
    # Asked about its own node, an objection can only be to the pod or to where it comes from.
    found = (objects(move, move.source) for move in chain for objects in objections)
    return next((why for why in found if why is not None), None)


def chains_of(moves: Iterable[Move]) -> tuple[Chain, ...]:
    """Return the moves that belong together, in the order of the plan."""
    found: dict[int, list[Move]] = {}
    for move in moves:
        found.setdefault(move.chain, []).append(move)
    return tuple(tuple(chain) for chain in found.values())


def is_maintenance(chain: Iterable[Move]) -> bool:
    """Tell whether a chain serves to empty a node; then nothing binds it that is for load."""
    return any(move.reason == MAINTENANCE for move in chain)


def touched_by(chains: Iterable[Chain]) -> frozenset[NodeName]:
    """Return the nodes that chains take from or bring to."""
    return frozenset(n for chain in chains for move in chain for n in (move.source, move.target))


def _stopped(config: RebalancerConfiguration, *, dry_run: bool) -> str:
    if dry_run:
        return "nothing is moved: this is a dry run"
    return "nothing is moved: paused is true" if config.paused else ""


def _observed(chain: Chain, config: RebalancerConfiguration) -> list[Strategy]:
    return [m.strategy for m in chain if config.mode_of(m.strategy) is Mode.OBSERVE]


def _observing(chains: Sequence[Chain], config: RebalancerConfiguration) -> tuple[str, ...]:
    found = sorted({strategy for chain in chains for strategy in _observed(chain, config)})
    return tuple(f"nothing is moved for {strategy}: its mode is observe" for strategy in found)


def _said(refusal: Refusal | None) -> tuple[str, ...]:
    return () if refusal is None else (f"nothing is moved for load: {refusal.words}",)


class Resting(msgspec.Struct, frozen=True):
    """Nodes that open Migrations touch."""

    touched: frozenset[NodeName] = frozenset()
    pools: Mapping[str, tuple[NodeName, ...]] = {}

    @classmethod
    def of(
        cls,
        migrations: Iterable[MigrationRecord],
        pools: Mapping[str, tuple[NodeName, ...]],
    ) -> Resting:
        """Look at what is under way."""
        return cls(nodes_of(migration for migration in migrations if migration.open), pools)

    def __call__(self, move: Move, target: NodeName) -> Refusal | None:
        if move.reason == MAINTENANCE:
            return None
        for name in (move.source, target):
            if name in self.touched:
                return _busy(name)
        return self._pool_at_rest(move) if move.reason == SPREAD else None

    def _pool_at_rest(self, move: Move) -> Refusal | None:
        pool = next((names for names in self.pools.values() if move.source in names), ())
        moving = self.touched.intersection(pool)
        return _busy(min(moving)) if moving else None


def _busy(node: NodeName) -> Refusal:
    words = f"another move from or to {node} is still under way"
    return Refusal("NodeBusy", words, for_good=False)


def not_migrating(
    migrations: Mapping[str, MigrationRecord], config: RebalancerConfiguration, now_s: float
) -> Objection:
    """Object to pods that are on their way, and to those whose last move failed just now."""
    known = {migration.pod_uid: migration for migration in migrations.values()}

    def objection(move: Move, _: NodeName) -> Refusal | None:
        found, maintenance = known.get(move.uid), move.reason == MAINTENANCE
        return in_the_way(found, config, now_s, maintenance=maintenance)

    return objection


def in_the_way(
    migration: MigrationRecord | None,
    config: RebalancerConfiguration,
    now_s: float,
    *,
    maintenance: bool,
) -> Refusal | None:
    """Return why a pod may not have another Migration than this one now.

    One that was evicted has another uid by now, so only Migrations that ended before the
    eviction stand in the way. Nothing is forgotten with them that the breaker counts.
    """
    if migration is None:
        return None
    if migration.open:
        return Refusal("Migrating", "it is being moved already", for_good=False)
    if migration.withdrawn or took_place(migration):
        return Refusal("Migrated", "it was moved just now", for_good=False)
    if migration.replacement_name and not migration.done(Step.CLEANED_UP):
        # Nobody would know of the copy any more.
        words = "the copy of its last move is still to be taken back"
        return Refusal("Migrating", words, for_good=False)
    rest = config.rescheduling_interval if maintenance else config.workload_cooldown
    ended_s = migration.created_s if migration.finished_s is None else migration.finished_s
    if now_s - ended_s >= rest.seconds:
        return None
    words = f"its last move came to nothing {now_s - ended_s:.0f}s ago"
    return Refusal("MigrationFailed", words, for_good=False)


def stale_nodes(
    nodes: Collection[NodeName], before: LoadView, now: LoadView
) -> frozenset[NodeName]:
    """Return the nodes that have no newer sample than before; where nothing is measured, none."""
    return frozenset(name for name in nodes if not _is_newer(name, before, now))


def _is_newer(name: NodeName, before: LoadView, now: LoadView) -> bool:
    old, new = before.nodes.get(name), now.nodes.get(name)
    if new is None or not new.known:
        return False
    # Requests are always up to date, and have no time of their own.
    if new.sample_end_s is None or old is None or old.sample_end_s is None:
        return True
    return new.sample_end_s > old.sample_end_s


def only_measured_anew(before: LoadView, now: LoadView) -> Objection:
    """Object to nodes of moves for load that have no newer sample."""

    def objection(move: Move, target: NodeName) -> Refusal | None:
        stale = stale_nodes((move.source, target), before, now)
        if move.reason == MAINTENANCE or not stale:
            return None
        words = f"{min(stale)} was not measured anew in time (revalidateWithin)"
        return Refusal("NoNewerSample", words, for_good=False)

    return objection


def predecessors_of(migrations: Iterable[MigrationRecord]) -> dict[PodUid, Load]:
    """Return what the pods used that some pods replaced, for pods without samples."""
    return {
        migration.replacement_uid: Load(migration.load_cpu_milli, migration.load_mem_bytes)
        for migration in migrations
        if migration.replacement_uid and migration.load_cpu_milli > 0.0
    }


def nodes_of(migrations: Iterable[MigrationRecord]) -> frozenset[NodeName]:
    """Return the nodes that Migrations take from or bring to."""
    names = (n for m in migrations for n in (m.source, m.target, m.replacement_node))
    return frozenset(name for name in names if name)
