# SPDX-License-Identifier: Apache-2.0
"""How the loop is doing: leader, extenders, breakers, metrics, moves. Pure.

What a running rebalancer knows of itself (who leads, which extenders it has seen alive) is handed
in. A command at a desk derives the same from Leases, by their own times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from common import __version__
from common.api.contract import EXTENDER_LEASE_PREFIX
from common.api.migrations import Purpose, Step
from common.cluster.migrations import MigrationRecord
from common.cluster.storage import LeaseRecord
from common.config import Guide, RebalancerConfiguration, Rules, Strategy, load_settings_hash
from console.data import BreakerRow, ExtenderRow, HealthDocument, Pause
from rebalancer.inspection import words
from rebalancer.inspection.moment import Inspection
from rebalancer.inspection.moves import hits
from rebalancer.pacing.breaker import Breakers
from rebalancer.pacing.extenders import (
    DEAD_S,
    ENOUGH_SHOWN,
    LIVE_S,
    ExtenderView,
    Replica,
    replica_of,
    sampling,
)
from rebalancer.pacing.history import BreakerState
from rebalancer.pacing.replay import histories_of
from rebalancer.pacing.signs import Signs

CLOCKS_S: Final = 30.0
"""How far the clock of a desk may be from those of the cluster before Leases look dead."""

NEVER_LED: Final = "no rebalancer has led yet"
CONFIGURED: Final = "the configuration"
"""Who has paused where `paused: true` did."""


class LoopState(msgspec.Struct, frozen=True, kw_only=True):
    """What cannot be read from the moment alone."""

    installed: bool
    leader: str
    """In words: `this process leads`."""
    extenders: ExtenderView
    pause: Pause | None = None
    pause_unknown: str = ""
    """Why it is not known whether moves are paused; empty if it is."""
    last_plan_s: float | None = None
    notes: tuple[str, ...] = ()


def health_document(asked: Inspection, state: LoopState) -> HealthDocument:
    """Return how the loop is doing."""
    belief, config, known = asked.belief, asked.config, asked.migrations
    samples = [n.sample_end_s for n in belief.load.nodes.values() if n.sample_end_s is not None]
    as_planned, replaced = hits(known)
    return HealthDocument(
        at_s=asked.now_s,
        version=__version__,
        installed=state.installed,
        leader=state.leader,
        mode=mode_words(config),
        acts=acts(config) and state.pause is None,
        strategies=tuple(str(each) for each in Strategy if each in _enabled(config)),
        pause=state.pause or _configured_pause(config),
        pause_unknown=state.pause_unknown,
        extenders=tuple(extender_rows(state.extenders, known, config)),
        guided=guided(state.extenders, config),
        breakers=tuple(breaker_rows(asked)),
        source=belief.source.asked.value,
        metrics_age_s=round(asked.now_s - max(samples), 1) if samples else None,
        trouble=belief.trouble or (belief.source.why if belief.source.without_metrics else ""),
        nodes=len(belief.load.nodes),
        nodes_unknown=belief.load.unknown,
        pods=len(belief.snapshot.pods),
        open_moves=sum(m.open for m in known),
        finished_moves=sum(not m.open for m in known),
        as_planned=as_planned,
        replaced=replaced,
        ack_lag_s=ack_lag_s(known),
        last_plan_s=state.last_plan_s,
        notes=(*state.notes, *strategy_notes(config)),
    )


def acts(config: RebalancerConfiguration) -> bool:
    """Tell whether any enabled strategy moves pods."""
    rules = Rules(config)
    return not config.paused and any(rules.acts(each) for each in rules.enabled_anywhere())


def _enabled(config: RebalancerConfiguration) -> frozenset[Strategy]:
    return Rules(config).enabled_anywhere()


def mode_words(config: RebalancerConfiguration) -> str:
    """Return the mode, with the strategies that differ from it."""
    others = [
        f"{strategy} {config.mode_of(strategy).value}"
        for strategy in config.enabled_strategies
        if config.mode_of(strategy) is not config.mode
    ]
    others += [
        f"pool {pool.name}: {strategy} {mode.value}"
        for pool in config.pools
        for strategy, mode in pool.modes.items()
    ]
    others += [
        f"namespaces[{number}]: {strategy} {mode.value}"
        for number, rule in enumerate(config.namespaces)
        for strategy, mode in rule.modes.items()
    ]
    return f"{config.mode.value} ({', '.join(others)})" if others else config.mode.value


def strategy_notes(config: RebalancerConfiguration) -> Iterator[str]:
    """Yield what a reader should know about the strategies."""
    if not _enabled(config):
        yield "No strategy is enabled (enabledStrategies), so nothing is planned."


def _configured_pause(config: RebalancerConfiguration) -> Pause | None:
    if not config.paused:
        return None
    return Pause(by=CONFIGURED, why="paused: true", until_s=None)


def ack_lag_s(migrations: Iterable[MigrationRecord]) -> float | None:
    """Return how long the newest acknowledged Migration waited for all extenders."""
    for migration in migrations:
        found = migration.condition(Step.ACKNOWLEDGED)
        if found is not None and found.status == "True":
            at_s = found.last_transition_time.timestamp()
            return max(0.0, round(at_s - migration.created_s, 1))
    return None


def view_of(leases: Iterable[LeaseRecord], now_s: float) -> ExtenderView:
    """Return the extenders that live by the times in their Leases; for a single look."""
    mine = [lease for lease in leases if lease.name.startswith(EXTENDER_LEASE_PREFIX)]
    fresh = [x for x in mine if x.renewed_s is not None and now_s - x.renewed_s < LIVE_S + CLOCKS_S]
    found = sorted((replica_of(lease) for lease in fresh), key=lambda each: each.name)
    return ExtenderView(tuple(found))


def extender_rows(
    view: ExtenderView, migrations: Iterable[MigrationRecord], config: RebalancerConfiguration
) -> Iterator[ExtenderRow]:
    """Yield the extenders, those that keep up first."""
    known, settings = list(migrations), load_settings_hash(config)
    for replica in view.live:
        yield _row(replica, known, settings, deaf=False)
    for replica in view.deaf:
        yield _row(replica, known, settings, deaf=True)


def _row(
    replica: Replica, known: Iterable[MigrationRecord], settings: str, *, deaf: bool
) -> ExtenderRow:
    seen = replica.seen
    behind = None if seen is None else sum(m.open and m.resource_version > seen for m in known)
    trouble = ["misses Migrations: restart it"] if deaf else []
    if replica.settings != settings:
        trouble.append("has other load settings than the rebalancer")
    return ExtenderRow(
        name=replica.name,
        alive=True,
        behind=behind,
        reported_s=replica.reported_s,
        schedulers=tuple(sorted(replica.callers)),
        words="; ".join(trouble),
    )


def guided(view: ExtenderView, config: RebalancerConfiguration) -> str:
    """Say what steers replacements."""
    if config.guide is Guide.ADMISSION:
        return "the API server sends replacements to their targets (guide: admission)"
    if not view.live and not view.deaf:
        return "no extender is alive: replacements would not be steered"
    return "; ".join(_guided(view, name) for name in config.scheduler_names)


def _guided(view: ExtenderView, scheduler: str) -> str:
    last_s, share = view.guided(scheduler), view.share(scheduler)
    if last_s is None:
        return f"{scheduler} has not called an extender yet"
    if share is not None and share < ENOUGH_SHOWN:
        return sampling(scheduler, share)
    return f"{scheduler} calls the extender"


def breaker_rows(asked: Inspection) -> Iterator[BreakerRow]:
    """Yield what stops moves, by purpose."""
    for purpose in Purpose:
        breakers = breakers_of(asked, purpose)
        yield _breaker_row(purpose.value, breakers.cluster())
        for name, state in breakers.stopped_namespaces():
            yield _breaker_row(f"{purpose.value} in namespace {name}", state)


def breakers_of(asked: Inspection, purpose: Purpose) -> Breakers:
    """Return the breakers of one purpose at this moment."""
    known, config = tuple(asked.snapshot.migrations.values()), asked.config
    signs = Signs(
        snapshot=asked.snapshot,
        migrations=known,
        purpose=purpose,
        now_s=asked.now_s,
        resting=asked.load.resting,
    )
    return Breakers.of(histories_of(known, config, purpose), signs, config.breaker)


def _breaker_row(purpose: str, state: BreakerState) -> BreakerRow:
    shown = "open" if state.open else "half-open" if state.half_open else "closed"
    return BreakerRow(purpose=purpose, state=shown, cause=state.cause, until_s=state.until_s)


def leader_words(leases: Mapping[str, LeaseRecord], key: str, now_s: float) -> str:
    """Say who leads, by the Lease; for a single look."""
    lease = leases.get(key)
    if lease is None:
        return NEVER_LED
    if not lease.holder or lease.renewed_s is None:
        return "no rebalancer leads"
    age_s = now_s - lease.renewed_s
    if age_s > max(lease.duration_s, LIVE_S) + CLOCKS_S:
        gone = " (long gone)" if age_s > DEAD_S else ""
        return (
            f"no rebalancer leads: {lease.holder} was last seen {words.duration(age_s)} ago{gone}"
        )
    return f"{lease.holder} leads"
