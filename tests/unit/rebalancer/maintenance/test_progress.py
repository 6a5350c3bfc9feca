# SPDX-License-Identifier: Apache-2.0
"""How far a node is emptied: numbers, and the sentence that people read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from common.api.contract import MAINTENANCE_LABEL, MAINTENANCE_PODS, MIRROR_POD, TEMPORARY_PDB_LABEL
from common.api.migrations import MigrationCondition, MigrationStatus, PodRef
from common.api.objects import PodDisruptionBudget
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from rebalancer.maintenance.progress import (
    CLAUSES,
    Kind,
    Progress,
    RemainingPod,
    predicted_peak,
    progress,
)
from rebalancer.planner import Plan
from rebalancer.planner.plan import Bound, Level, Move, NodePlan, Refused
from rebalancer.refusals import Reason, Refusal
from simulator import build
from tests.support.worlds.migrations import migration, spec_of
from tests.support.worlds.wire import stamped, uid_of, wire, wire_node, wire_pod

NODE = NodeName("n1")
LOCAL = Refusal("LocalStorage", "it keeps data on its node")
FULL = Refusal("LargerThanAnyRoom", "no node has room", permanent=False)
NEVER = Refusal("PdbExhausted", "PDB web keeps all of them")
EXHAUSTED = Refusal("PdbExhausted", "PDB web allows none", permanent=False)


class World:
    """A node under maintenance and what a test puts on it."""

    def __init__(self, *, labelled: bool = True, remembered: str | None = None) -> None:
        self.state = ClusterState()
        self.moves: list[Move] = []
        self.refused: list[Refused] = []
        self.levels: list[NodePlan] = []
        labels = {MAINTENANCE_LABEL: "true"} if labelled else {}
        annotations = {MAINTENANCE_PODS: remembered} if remembered is not None else {}
        made = build.node(NODE, labels=labels, annotations=annotations)
        self.state.nodes.upsert(wire_node(made))
        self.state.nodes.upsert(wire_node(build.node("n2")))

    def pod(self, name: str, app: str = "web", **said: Any) -> PodUid:
        owner = said.pop("owner", None)
        metadata = said.pop("metadata", {})
        made = build.pod(name, node=NODE, labels={"app": app}, **said)
        self.state.pods.upsert(wire_pod(made, owner=owner, **metadata))
        return PodUid(uid_of(f"Pod/default/{name}"))

    def refuse(self, name: str, *reasons: Refusal) -> None:
        uid = self.pod(name)
        self.refused.append(Refused(pod=name, uid=uid, node=NODE, reasons=reasons))

    def plan_move(self, name: str, deferred_by: str = "") -> None:
        self.moves.append(move(self.pod(name), deferred_by))

    def migrate(self, name: str, *, missing: str = "", status: Any = None, **said: Any) -> str:
        uid = self.pod(name)
        conditions = (condition(missing),) if missing else ()
        found = status or MigrationStatus(phase="InProgress", conditions=conditions)
        pod = PodRef(namespace="default", name=name, uid=uid)
        given = {"strategy": "NodeMaintenance", "reason": "Maintenance", "source": NODE, **said}
        self.state.migrations.upsert(migration(spec_of(pod=pod, **given), status=found))
        return uid

    def budget(self, name: str, app: str = "web", **labels: str) -> None:
        made = stamped(build.pdb(name, match={"app": app}, min_available=1))
        made["metadata"]["labels"] = labels
        self.state.budgets.upsert(wire(PodDisruptionBudget, made))

    @property
    def snapshot(self) -> Snapshot:
        return self.state.snapshot()

    def plan(self) -> Plan:
        return Plan(
            plan_id="p",
            fingerprint="f",
            strategies=(Strategy.NODE_MAINTENANCE,),
            goals=(),
            moves=tuple(self.moves),
            lower_bound=Bound(evictions=0, proof="none", message=""),
            nodes=tuple(self.levels),
            unmet=(),
            refused=tuple(self.refused),
        )

    def look(self) -> Progress:
        snapshot = self.snapshot
        return progress(snapshot.nodes[NODE], snapshot, self.plan())


def move(uid: PodUid, deferred_by: str) -> Move:
    return Move(
        pod="default/x",
        uid=uid,
        owner="",
        source=NODE,
        target=NodeName("n2"),
        alternatives=(),
        strategy=Strategy.NODE_MAINTENANCE,
        reason="Maintenance",
        message="",
        chain=0,
        cpu_milli=1.0,
        mem_bytes=1.0,
        this_cycle=not deferred_by,
        deferred_by=deferred_by,
    )


def condition(reason: str) -> MigrationCondition:
    return MigrationCondition(
        type="BudgetChecked",
        status="False",
        reason=reason,
        last_transition_time=datetime(2026, 11, 16, tzinfo=UTC),
    )


def test_the_sentence_of_the_design() -> None:
    world = World(remembered="18")
    world.budget("web")
    for name in ("a", "b"):
        world.refuse(name, EXHAUSTED)
    for name in ("c", "d"):
        world.refuse(name, LOCAL)
    found = world.look()
    assert found.text == "14 of 18 pods moved; 2 wait for PDB web; 2 stay: local storage"
    assert not found.done


def test_an_empty_node_has_nothing_to_move() -> None:
    found = World().look()
    assert found.text == "no pods to move"
    assert found.done


def test_a_node_on_which_pods_stay_is_not_done_but_stuck() -> None:
    world = World(remembered="3")
    world.refuse("a", LOCAL)
    found = world.look()
    assert (found.done, found.stuck, found.stays) == (False, True, True)
    assert found.text == "2 of 3 pods moved; 1 stays: local storage"
    assert found.named(20) == "default/a stays: local storage"


@pytest.mark.parametrize(
    ("limit", "stuck"), [("", False), ("maintenanceParallelism", False), ("Budget", True)]
)
def test_what_comes_to_its_turn_is_not_stuck(limit: str, stuck: bool) -> None:
    world = World()
    world.budget("web")
    world.plan_move("a", limit)
    found = world.look()
    assert (found.stuck, found.stays) == (stuck, False)


def test_of_many_pods_the_first_are_named() -> None:
    world = World()
    for number in range(5):
        world.pod(f"p{number}")
    world.refuse("q", LOCAL)
    assert world.look().named(2) == "default/q stays: local storage, default/p0 is next and 4 more"


@pytest.mark.parametrize(
    ("reasons", "until"),
    [
        ((Reason.SINGLE_REPLICA.refusal(),), True),
        ((Reason.SINGLE_REPLICA.refusal(), LOCAL), True),
        ((Reason.SINGLE_REPLICA.refusal(), NEVER), False),
        ((Reason.BARE_POD.refusal(),), False),
        ((EXHAUSTED,), False),
    ],
    ids=["wish", "two", "budget too", "bare", "waits"],
)
def test_what_holds_only_until_the_deadline_is_known(
    reasons: tuple[Refusal, ...], until: bool
) -> None:
    world = World()
    world.refuse("a", *reasons)
    assert [pod.until_deadline for pod in world.look().remaining] == [until]


def test_without_a_plan_everybody_is_next() -> None:
    world = World()
    world.pod("a")
    snapshot = world.snapshot
    found = progress(snapshot.nodes[NODE], snapshot, None)
    assert found.text == "0 of 1 pods moved; 1 is next"


@pytest.mark.parametrize("remembered", ["1", "", "many", "²", None])
def test_the_total_is_never_less_than_what_is_there(remembered: str | None) -> None:
    world = World(remembered=remembered)
    world.pod("a")
    world.pod("b")
    assert world.look().text == "0 of 2 pods moved; 2 are next"


def test_pods_that_belong_to_the_node_are_not_counted() -> None:
    world = World()
    daemon = {**build.replica_set("agent", 1), "kind": "DaemonSet"}
    world.pod("agent-1", owner=daemon)
    world.pod("static", annotations={MIRROR_POD: "hash"})
    assert world.look().total == 0


def test_open_migrations_and_terminating_pods_are_moving() -> None:
    world = World()
    world.migrate("a")
    world.pod("b", metadata={"deletionTimestamp": "2026-11-16T09:00:00Z"})
    assert world.look().text == "0 of 2 pods moved; 2 are moving"


def test_a_finished_migration_does_not_make_a_pod_move() -> None:
    world = World()
    world.migrate("a", status=MigrationStatus(phase="Failed"))
    assert world.look().of(Kind.NEXT) == 1


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("PdbExhausted", "1 waits for PDB web"),
        ("DisruptionBudget", "1 waits for PDB web"),
        ("NotAcknowledged", "1 is moving"),
    ],
)
def test_a_migration_that_waits_for_a_budget_says_so(missing: str, words: str) -> None:
    world = World()
    world.budget("web")
    world.migrate("a", missing=missing)
    assert world.look().text == f"0 of 1 pods moved; {words}"


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("", "1 is next"),
        ("maintenanceParallelism", "1 waits for a turn"),
        ("PodDisruptionBudget", "1 waits for PDB web"),
    ],
)
def test_deferred_moves_say_what_they_wait_for(limit: str, words: str) -> None:
    world = World()
    world.budget("web")
    world.plan_move("a", limit)
    assert world.look().text == f"0 of 1 pods moved; {words}"


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ((FULL, EXHAUSTED), "1 waits for PDB web"),
        ((NEVER,), "1 stays for PDB web"),
        ((NEVER, LOCAL), "1 stays: local storage"),
    ],
    ids=["beside another reason", "for good", "beside a reason of its own"],
)
def test_a_budget_is_named_whatever_else_there_is(reasons: tuple[Refusal, ...], words: str) -> None:
    world = World()
    world.budget("web")
    world.refuse("a", *reasons)
    assert world.look().text == f"0 of 1 pods moved; {words}"


def test_of_two_budgets_the_one_that_stays_is_named() -> None:
    world = World()
    world.budget("a-rescheduler-pdb", **{TEMPORARY_PDB_LABEL: "web"})
    world.budget("web")
    world.migrate("a", missing="TemporaryPdbGivesWay")
    assert world.look().text == "0 of 1 pods moved; 1 waits for PDB web"


@pytest.mark.parametrize(
    ("missing", "words"),
    [("WorkloadAtOnce", "1 waits for a turn"), ("Paused", "1 waits: paused")],
)
def test_a_move_that_may_not_begin_says_why(missing: str, words: str) -> None:
    world = World()
    pending = MigrationStatus(phase="Pending", conditions=(condition(missing),))
    world.migrate("a", status=pending)
    assert world.look().text == f"0 of 1 pods moved; {words}"


def test_a_reason_for_good_outweighs_one_for_now() -> None:
    world = World()
    world.refuse("a", EXHAUSTED, LOCAL)
    world.refuse("b", FULL)
    assert world.look().text == (
        "0 of 2 pods moved; 1 waits: larger than any room; 1 stays: local storage"
    )


def test_many_reasons_are_summed_up() -> None:
    pods = [
        RemainingPod(f"p{n}-{i}", PodUid("u"), Kind.STAYING, f": reason {n}")
        for n in range(CLAUSES + 2)
        for i in range(n + 1)
    ]
    found = Progress(total=100, remaining=tuple(pods))
    assert found.text.count(";") == CLAUSES + 1
    assert found.text.endswith("; 3 more for other reasons")


def test_the_peak_of_the_other_nodes_is_foretold() -> None:
    world = World()
    levels = {NODE: (99.0, 99.0), "n2": (71.4, 30.0), "n3": (20.0, 55.0)}
    world.levels = [
        NodePlan(
            name=NodeName(name),
            before=Level(cpu=0.0, memory=0.0),
            after=Level(cpu=cpu, memory=memory),
            role="",
        )
        for name, (cpu, memory) in levels.items()
    ]
    assert predicted_peak(world.plan(), world.snapshot) == (
        "the other nodes will use at most 71 % of their CPU (n2) and 55 % of their memory (n3)"
    )
    world.levels = [msgspec.structs.replace(level, unknown="NoSample") for level in world.levels]
    assert predicted_peak(world.plan(), world.snapshot) == (
        "the other nodes have, by requests, at most 71 % of their CPU (n2) "
        "and 55 % of their memory (n3)"
    )
    world.levels = []
    assert predicted_peak(world.plan(), world.snapshot) == "no other node is known"
