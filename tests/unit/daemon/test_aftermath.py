"""What moves were expected to do, and what they did."""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from common.cluster.interning import Interner
from common.cluster.migrations import (
    Migration,
    MigrationRecord,
    MigrationStatus,
    NodeUse,
    ReplacementRef,
    Uses,
    migration_record,
)
from common.cluster.records import NodeName, PodUid
from common.contract import PREDICTED_USE
from common.kube.errors import NotFound, ServerError
from common.load import Basis, Change, Difference
from common.metrics import Metrics
from common.observer import Belief
from rebalancer.aftermath import LOOK_S, Aftermath, due, errors, overdue
from tests.support.clock import FakeClock
from tests.support.guard_world import Notes
from tests.support.migrations import START, migration, spec_of
from tests.support.strategy_scenes import Scene

START_S = START.timestamp()
PREDICTED = Uses(
    source=NodeUse(cpu_percent=70.0, memory_percent=50.0),
    target=NodeUse(cpu_percent=60.0, memory_percent=50.0),
)


def wire(name: str = "u-1", **status: Any) -> Migration:
    spec = spec_of(source="n1", target="n2", alternatives=())
    spec.pod.uid = name
    said = {"phase": "Completed", "outcome": "AsPlanned", "finished_at": START, **status}
    return migration(spec, status=MigrationStatus(**said))


def record(name: str = "u-1", **status: Any) -> MigrationRecord:
    return migration_record(wire(name, **status), Interner())


def belief(*wires: Migration, **samples: float) -> Belief:
    levels = {"n1": {"cpu": 72.0}, "n2": {"cpu": 59.0}}
    scene = Scene(
        {
            name: {**level, "sample": START_S + samples.get(name, 1)}
            for name, level in levels.items()
        }
    )
    for each in wires:
        scene.state.migrations.upsert(each)
    look = scene.look()
    return Belief(look.snapshot, look.load)


@pytest.mark.parametrize(
    ("found", "samples", "counts"),
    [
        (record(), {}, True),
        (record(), {"n1": 0}, False),
        (record(), {"n2": -5}, False),
        (record(outcome="Elsewhere"), {}, True),
        (record(outcome="NotReplaced"), {}, False),
        (record(phase="Failed"), {}, False),
        (record(phase="InProgress"), {}, False),
    ],
)
def test_a_move_is_looked_after_once_both_nodes_were_measured_since(
    found: MigrationRecord, samples: dict[str, float], counts: bool
) -> None:
    assert bool(due([found], belief(**samples).load, done=())) is counts


@pytest.mark.parametrize(
    ("node", "uid", "change", "counts"),
    [
        ("n2", "u-9", Change.ARRIVING, False),
        ("n1", "u-1", Change.LEFT, False),
        ("n1", "u-1", Change.LEAVING, True),
        ("n2", "u-3", Change.ARRIVING, True),
    ],
)
def test_samples_that_its_own_pods_correct_tell_nothing_about_a_move(
    node: str, uid: str, change: Change, counts: bool
) -> None:
    found = record(replacement=ReplacementRef(name="web-9", uid="u-9", node="n2"))
    view = copy.copy(belief().load)
    pod = Difference("shop/web", PodUid(uid), change, 500.0, 0.0, Basis.PREDECESSOR)
    name = NodeName(node)
    view.nodes = {
        **view.nodes,
        name: msgspec.structs.replace(view.nodes[name], differences=(pod,)),
    }

    assert bool(due([found], view, done=())) is counts


def test_a_move_is_looked_after_once() -> None:
    assert due([record()], belief().load, done={record().uid}) == []


def test_other_moves_of_its_nodes_are_waited_for() -> None:
    other = record("u-2", phase="InProgress", finished_at=None)
    assert due([record(), other], belief().load, done=()) == []


def test_a_node_that_is_gone_is_not_asked_about() -> None:
    load = Scene({"n1": {"sample": START_S + 1}}).look().load
    assert NodeName("n2") not in load.nodes
    assert due([record()], load, done=()) == []


def test_errors_are_points_of_each_figure_that_was_predicted() -> None:
    actual = Uses(source=NodeUse(cpu_percent=72.0, memory_percent=50.0), target=NodeUse())
    assert list(errors(Uses(source=PREDICTED.source), actual)) == [
        ("source", "cpu", 2.0),
        ("source", "memory", 0.0),
    ]


def test_what_ended_long_ago_is_let_be() -> None:
    assert not overdue(record(), now_s=START_S + 60, patience_s=60)
    assert overdue(record(), now_s=START_S + 61, patience_s=60)


class Api:
    """One Migration, and what was patched into it."""

    def __init__(self, found: Migration | None, *, predicted: Uses | None = PREDICTED) -> None:
        self.found = found
        self.patches: list[Any] = []
        self.asked = 0
        self.broken = False
        if found is not None and predicted is not None:
            text = msgspec.json.encode(predicted).decode()
            found.metadata.annotations = {PREDICTED_USE: text}

    async def get(self, path: str) -> bytes:
        self.asked += 1
        if self.broken:
            raise ServerError(500, "no")
        if self.found is None:
            raise NotFound(404, "gone")
        assert path == "/apis/evenkeel.io/v1alpha1/migrations/u-1"
        return msgspec.json.encode(self.found)

    async def patch(
        self, _resource: Any, body: Any, *, name: str, subresource: str | None = None
    ) -> bytes:
        assert (name, subresource) == ("u-1", "status")
        self.patches.append(msgspec.to_builtins(body))
        return b"{}"


def looking_after(
    api: Api, *wires: Migration, late_s: float = 0.0, told: Notes | None = None
) -> tuple[Aftermath, Metrics]:
    metrics, told = Metrics("test"), told or Notes()

    async def look() -> Belief:
        return belief(*wires)

    clock = FakeClock(now=(START + timedelta(seconds=1 + late_s)).timestamp())
    made = Aftermath(look, api, recorder=told, clock=clock, metrics=metrics, patience_s=60)
    return made, metrics


def error_sum(metrics: Metrics, node: str) -> float | None:
    name = "evenkeel_prediction_error_points_sum"
    return metrics.registry.get_sample_value(name, {"node": node, "resource": "cpu"})


async def test_both_figures_go_into_the_status_and_the_error_into_the_metrics() -> None:
    api = Api(wire())
    aftermath, metrics = looking_after(api, wire())
    for _ in range(2):
        await aftermath.look()
    [patch] = api.patches
    assert patch["status"]["predicted"]["source"]["cpuPercent"] == 70.0
    assert patch["status"]["actual"]["source"]["cpuPercent"] == 72.0
    assert patch["status"]["actual"]["target"]["cpuPercent"] == 59.0
    assert (error_sum(metrics, "source"), error_sum(metrics, "target")) == (2.0, 1.0)
    assert api.asked == 1


async def test_whoever_looks_at_the_replacement_is_told_both_figures() -> None:
    moved = wire(replacement=ReplacementRef(name="web-2", uid="u-2", node="n2"))
    told, api = Notes(), Api(moved)
    aftermath, _ = looking_after(api, moved, told=told)
    for _ in range(2):
        await aftermath.look()
    assert [(name, reason) for name, reason, _ in told.told] == [("web-2", "MigrationMeasured")]
    assert told.of("MigrationMeasured") == [
        "n1 uses 72 % CPU and 50 % memory, expected were 70 % and 50 %; "
        "n2 uses 59 % CPU and 50 % memory, expected were 60 % and 50 %"
    ]


async def test_an_odd_look_does_not_end_the_looking() -> None:
    clock, looks = FakeClock(), 0

    async def odd() -> Belief:
        nonlocal looks
        looks += 1
        raise KeyError("a bug of ours")

    aftermath = Aftermath(
        odd, Api(None), recorder=Notes(), clock=clock, metrics=Metrics("test"), patience_s=60
    )
    task = asyncio.create_task(aftermath.run())
    try:
        await clock.until_sleeping(1)
        await clock.advance(LOOK_S)
        await clock.until_sleeping(1)
        assert looks == 2
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_only_moves_that_went_as_planned_measure_the_prediction() -> None:
    elsewhere = wire(outcome="Elsewhere")
    api = Api(elsewhere)
    aftermath, metrics = looking_after(api, elsewhere)
    await aftermath.look()
    assert len(api.patches) == 1
    assert error_sum(metrics, "source") is None


@pytest.mark.parametrize(
    "api",
    [
        Api(None),
        Api(wire(), predicted=None),
        Api(wire(actual=PREDICTED)),
    ],
    ids=["gone", "not predicted", "told already"],
)
async def test_nothing_is_told_where_there_is_nothing_to_tell(api: Api) -> None:
    aftermath, _ = looking_after(api, wire())
    await aftermath.look()
    assert api.patches == []


async def test_trouble_with_the_api_stops_nobody_and_is_tried_again() -> None:
    api = Api(wire())
    api.broken = True
    aftermath, _ = looking_after(api, wire())
    await aftermath.look()
    assert api.patches == []
    api.broken = False
    for _ in range(2):
        await aftermath.look()
    assert len(api.patches) == 1


async def test_a_new_leader_does_not_ask_about_what_is_long_over() -> None:
    api = Api(wire())
    aftermath, _ = looking_after(api, wire(), late_s=60)
    await aftermath.look()
    assert api.asked == 0


async def test_what_could_not_be_measured_in_time_is_counted_and_let_be() -> None:
    other = wire("u-2", phase="InProgress", finished_at=None)
    api, now = Api(wire()), START.timestamp() + 1
    clock, metrics = FakeClock(now=START_S - 1), Metrics("test")

    async def look() -> Belief:
        return belief(wire(), other)

    aftermath = Aftermath(look, api, recorder=Notes(), clock=clock, metrics=metrics, patience_s=60)
    for seconds in (now - START_S + 1, 60, 60):
        await clock.advance(seconds)
        await aftermath.look()
    assert api.asked == 0
    assert metrics.registry.get_sample_value("evenkeel_predictions_unchecked_total") == 1
