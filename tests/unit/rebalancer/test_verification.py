# SPDX-License-Identifier: Apache-2.0
"""What moves were expected to do, and what they did."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from common.api.contract import PREDICTED_USE
from common.api.migrations import Migration, MigrationStatus, NodeUse, ReplacementRef, Uses
from common.cache.state import ClusterState
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.cluster.records import NodeName, PodUid
from common.kube.errors import NotFound, ServerError
from common.load import Basis, Belief, Change, Difference
from common.metrics import Metrics
from rebalancer.store import MigrationStore
from rebalancer.verification import CHECK_EVERY_S, MoveVerifier, due, errors, overdue
from tests.support.clock import FakeClock
from tests.support.stands.kube_api import PartialKubeApi
from tests.support.worlds.guards import Notes
from tests.support.worlds.migrations import START, migration, spec_of
from tests.support.worlds.observer import FakeObserver
from tests.support.worlds.strategies import Scene

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
    cluster = scene.cluster()
    return Belief(cluster.snapshot, cluster.load)


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
def test_a_move_is_verified_once_both_nodes_were_measured_since(
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


def test_a_move_is_verified_once() -> None:
    assert due([record()], belief().load, done={record().uid}) == []


def test_other_moves_of_its_nodes_are_waited_for() -> None:
    other = record("u-2", phase="InProgress", finished_at=None)
    assert due([record(), other], belief().load, done=()) == []


def test_a_node_that_is_gone_is_not_asked_about() -> None:
    load = Scene({"n1": {"sample": START_S + 1}}).cluster().load
    assert NodeName("n2") not in load.nodes
    assert due([record()], load, done=()) == []


def test_errors_are_points_of_each_figure_that_was_predicted() -> None:
    actual = Uses(source=NodeUse(cpu_percent=72.0, memory_percent=50.0), target=NodeUse())
    assert list(errors(Uses(source=PREDICTED.source), actual)) == [
        ("source", "cpu", 2.0),
        ("source", "memory", 0.0),
    ]


def test_what_ended_long_ago_is_given_up() -> None:
    assert not overdue(record(), now_s=START_S + 60, patience_s=60)
    assert overdue(record(), now_s=START_S + 61, patience_s=60)


class Api(PartialKubeApi):
    """One Migration, and what was patched into it."""

    def __init__(self, found: Migration | None, *, predicted: Uses | None = PREDICTED) -> None:
        self.found = found
        self.patches: list[Any] = []
        self.asked = 0
        self.broken = False
        if found is not None and predicted is not None:
            text = msgspec.json.encode(predicted).decode()
            found.metadata.annotations = {PREDICTED_USE: text}

    async def get(self, path: str, **_: Any) -> bytes:
        self.asked += 1
        if self.broken:
            raise ServerError(500, "no")
        if self.found is None:
            raise NotFound(404, "gone")
        assert path == "/apis/evenkeel.io/v1alpha1/migrations/u-1"
        return msgspec.json.encode(self.found)

    async def patch(
        self, resource: Any, body: Any, *, name: str, subresource: str | None = None, **_: Any
    ) -> bytes:
        assert (name, subresource) == ("u-1", "status")
        self.patches.append(msgspec.to_builtins(body))
        return msgspec.json.encode(self.found)


def verifier_of(
    api: Api, believe: Callable[[], Belief], clock: FakeClock, told: Notes | None = None
) -> tuple[MoveVerifier, Metrics]:
    metrics = Metrics("test")
    store = MigrationStore(api, ClusterState(), clock=clock, metrics=metrics)
    made = MoveVerifier(
        FakeObserver(lambda _: believe()),
        store,
        recorder=told or Notes(),
        clock=clock,
        metrics=metrics,
        patience_s=60,
    )
    return made, metrics


def verifying(
    api: Api, *wires: Migration, late_s: float = 0.0, told: Notes | None = None
) -> tuple[MoveVerifier, Metrics]:
    clock = FakeClock(now=(START + timedelta(seconds=1 + late_s)).timestamp())
    return verifier_of(api, lambda: belief(*wires), clock, told)


def error_sum(metrics: Metrics, node: str) -> float | None:
    name = "evenkeel_prediction_error_points_sum"
    return metrics.registry.get_sample_value(name, {"node": node, "resource": "cpu"})


async def test_both_figures_go_into_the_status_and_the_error_into_the_metrics() -> None:
    api = Api(wire())
    verifier, metrics = verifying(api, wire())
    for _ in range(2):
        await verifier.verify()
    [patch] = api.patches
    assert patch["status"]["predicted"]["source"]["cpuPercent"] == 70.0
    assert patch["status"]["actual"]["source"]["cpuPercent"] == 72.0
    assert patch["status"]["actual"]["target"]["cpuPercent"] == 59.0
    assert (error_sum(metrics, "source"), error_sum(metrics, "target")) == (2.0, 1.0)
    assert api.asked == 1


async def test_an_event_on_the_replacement_has_both_figures() -> None:
    moved = wire(replacement=ReplacementRef(name="web-2", uid="u-2", node="n2"))
    told, api = Notes(), Api(moved)
    verifier, _ = verifying(api, moved, told=told)
    for _ in range(2):
        await verifier.verify()
    assert [(name, reason) for name, reason, _ in told.told] == [("web-2", "MigrationMeasured")]
    assert told.of("MigrationMeasured") == [
        "n1 uses 72 % CPU and 50 % memory, expected 70 % and 50 %; "
        "n2 uses 59 % CPU and 50 % memory, expected 60 % and 50 %"
    ]


async def test_an_error_does_not_end_the_verification() -> None:
    clock, looks = FakeClock(), 0

    def odd() -> Belief:
        nonlocal looks
        looks += 1
        raise KeyError("a bug of ours")

    verifier, _ = verifier_of(Api(None), odd, clock)
    task = asyncio.create_task(verifier.run())
    try:
        await clock.until_sleeping(1)
        await clock.advance(CHECK_EVERY_S)
        await clock.until_sleeping(1)
        assert looks == 2
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_only_moves_that_went_as_planned_measure_the_prediction() -> None:
    elsewhere = wire(outcome="Elsewhere")
    api = Api(elsewhere)
    verifier, metrics = verifying(api, elsewhere)
    await verifier.verify()
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
    verifier, _ = verifying(api, wire())
    await verifier.verify()
    assert api.patches == []


async def test_a_failed_request_is_tried_again() -> None:
    api = Api(wire())
    api.broken = True
    verifier, _ = verifying(api, wire())
    await verifier.verify()
    assert api.patches == []
    api.broken = False
    for _ in range(2):
        await verifier.verify()
    assert len(api.patches) == 1


async def test_a_new_leader_does_not_ask_about_what_is_long_over() -> None:
    api = Api(wire())
    verifier, _ = verifying(api, wire(), late_s=60)
    await verifier.verify()
    assert api.asked == 0


async def test_what_could_not_be_measured_in_time_is_counted_and_given_up() -> None:
    other = wire("u-2", phase="InProgress", finished_at=None)
    api, now = Api(wire()), START.timestamp() + 1
    clock = FakeClock(now=START_S - 1)
    verifier, metrics = verifier_of(api, lambda: belief(wire(), other), clock)
    for seconds in (now - START_S + 1, 60, 60):
        await clock.advance(seconds)
        await verifier.verify()
    assert api.asked == 0
    assert metrics.registry.get_sample_value("evenkeel_predictions_unchecked_total") == 1
