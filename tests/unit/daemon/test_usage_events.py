"""An Event tells that metrics are missing, and that they are back."""

from __future__ import annotations

from common.cluster.snapshot import Snapshot
from common.kube.events import ObjectRef
from common.load import LoadBook
from common.observer import Belief
from common.usage import MEASURED, SourceChoice, SourceKind
from rebalancer.usage_events import AGAIN_S, UsageEvents
from tests.support.clock import FakeClock
from tests.support.guard_world import Notes
from tests.support.load_world import LoadWorld

LEASE = ObjectRef(kind="Lease", namespace="evenkeel", name="evenkeel-rebalancer")
NONE = SourceChoice(
    configured=SourceKind.AUTO, asked=SourceKind.REQUESTS, why="the cluster does not serve it"
)


class World:
    def __init__(self) -> None:
        self.clock, self.notes = FakeClock(), Notes()
        self.events = UsageEvents(self.notes, LEASE, clock=self.clock)
        world = LoadWorld()
        world.node("n1")
        self.snapshot: Snapshot = world.state.snapshot()

    def saw(self, source: SourceChoice, *, trouble: str = "", known: bool = True) -> list[str]:
        """Return the reasons that one more belief makes it tell."""
        told = len(self.notes.told)
        load = LoadBook(from_requests=known).view(self.snapshot, self.clock.now())
        self.events.saw(Belief(self.snapshot, load, source, trouble))
        assert {name for name, _, _ in self.notes.told} <= {LEASE.name}
        return [reason for _, reason, _ in self.notes.told[told:]]


async def test_missing_metrics_are_told_once_and_again_before_it_is_forgotten() -> None:
    world = World()
    assert world.saw(NONE) == ["NoMetrics"]
    assert world.saw(NONE) == []
    await world.clock.advance(AGAIN_S)
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
