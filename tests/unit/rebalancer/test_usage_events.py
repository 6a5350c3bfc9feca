# SPDX-License-Identifier: Apache-2.0
"""An Event tells that metrics are missing, and that they are back."""

from __future__ import annotations

from common.cache.snapshot import Snapshot
from common.config import SourceKind
from common.kube.events import ObjectRef
from common.load import Belief, LoadTracker
from common.usage import MEASURED, SourceChoice
from rebalancer.usage_events import REPEAT_S, LeaseEvents, UsageEvents
from tests.support.clock import FakeClock
from tests.support.worlds.guards import Notes
from tests.support.worlds.load import LoadWorld

LEASE = ObjectRef(kind="Lease", namespace="evenkeel", name="evenkeel-rebalancer")
NONE = SourceChoice(
    configured=SourceKind.AUTO, asked=SourceKind.REQUESTS, why="the cluster does not serve it"
)


class World:
    def __init__(self) -> None:
        self.clock, self.notes = FakeClock(), Notes()
        self.events = UsageEvents(LeaseEvents(self.notes, LEASE), clock=self.clock)
        world = LoadWorld()
        world.node("n1")
        self.snapshot: Snapshot = world.state.snapshot()

    def saw(self, source: SourceChoice, *, trouble: str = "", known: bool = True) -> list[str]:
        """Return the reasons that one more belief makes it tell."""
        told = len(self.notes.told)
        load = LoadTracker(from_requests=known).view(self.snapshot, self.clock.now())
        self.events.observe(Belief(self.snapshot, load, source, trouble))
        assert {name for name, _, _ in self.notes.told} <= {LEASE.name}
        return [reason for _, reason, _ in self.notes.told[told:]]


async def test_missing_metrics_are_told_once_and_again_before_it_is_forgotten() -> None:
    world = World()
    assert world.saw(NONE) == ["NoMetrics"]
    assert world.saw(NONE) == []
    await world.clock.advance(REPEAT_S)
    assert world.saw(NONE) == ["NoMetrics"]
    [note, _] = world.notes.of("NoMetrics")
    assert note.startswith("The cluster does not serve it: ")


def test_that_they_are_back_is_told_once_usage_is_known() -> None:
    world = World()
    world.saw(NONE)
    assert world.saw(MEASURED, known=False) == []
    assert world.saw(MEASURED) == ["UsageRead"]
    assert world.saw(MEASURED) == []


def test_a_source_that_fails_is_told_when_nothing_is_known_any_more() -> None:
    world = World()
    assert world.saw(MEASURED, trouble="metrics-server: 503") == []
    assert world.saw(MEASURED, trouble="metrics-server: 503", known=False) == ["UsageNotRead"]
    assert world.saw(MEASURED) == ["UsageRead"]


def test_before_the_first_sample_nothing_is_told() -> None:
    assert World().saw(MEASURED, known=False) == []


def test_requests_that_were_configured_are_no_news() -> None:
    said = SourceChoice(configured=SourceKind.REQUESTS, asked=SourceKind.REQUESTS)
    assert World().saw(said) == []


def test_an_extender_that_misses_migrations_is_told_on_the_lease() -> None:
    notes = Notes()
    LeaseEvents(notes, LEASE).extender_deaf("extender a is alive but misses Migrations")
    assert notes.told == [
        (
            LEASE.name,
            "ExtenderDeaf",
            "Extender a is alive but misses Migrations. Nothing waits for it.",
        )
    ]


def test_a_dry_run_records_no_events() -> None:
    LeaseEvents(None, LEASE).extender_deaf("extender a is alive but misses Migrations")
