# SPDX-License-Identifier: Apache-2.0
"""By which pods a node's load differs from its sample, and by nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.api.migrations import Amounts, MigrationStatus, PodRef
from common.load import Basis, Change
from tests.support.worlds.load import MIB, LoadWorld, running_since, waiting
from tests.support.worlds.migrations import migration, spec_of

GRACE_S = 7200.0


@pytest.fixture
def world() -> LoadWorld:
    """A node whose overhead of 200m is known, and two pods that were measured."""
    made = LoadWorld()
    made.node("n1", cpu="10")
    made.pod("a")
    made.pod("b")
    for _ in range(3):
        measure(made, 5200.0, a=2000.0, b=3000.0)
        made.pass_time(15.0)
    return made


def measure(world: LoadWorld, node: float, **pods: float) -> None:
    """Let everything be measured over the last ten seconds."""
    figures = {name: (cpu, cpu) for name, cpu in pods.items()}
    world.measure({"n1": (node, node)}, figures, window_s=10.0)


# What terminates


def test_a_terminating_pod_counts_now_and_not_for_goals(world: LoadWorld) -> None:
    world.pod("a", deleted_s=world.now_s + GRACE_S)

    load = world.load()

    assert (load.cpu_milli, load.mem_bytes) == (5200.0, 5200.0 * MIB)
    assert load.settled_cpu_percent == pytest.approx(32.0)
    assert load.settled.mem_bytes == pytest.approx(3200.0 * MIB)
    assert [(d.pod, d.change) for d in load.differences] == [("default/a", Change.LEAVING)]


def test_a_pod_that_drains_for_hours_has_left_for_goals_all_the_time(world: LoadWorld) -> None:
    world.pod("a", deleted_s=world.now_s + GRACE_S)
    seen = set()
    for _ in range(int(GRACE_S // 60)):
        world.pass_time(60.0)
        measure(world, 5200.0, a=2000.0, b=3000.0)
        seen.add((world.load().cpu_milli, world.load().settled.cpu_milli))

    assert seen == {(5200.0, 3200.0)}


@pytest.mark.parametrize(("late_s", "settled"), [(59.0, 3200.0), (61.0, 5200.0)])
def test_a_pod_that_outlives_its_deletion_timestamp_by_a_minute_stays(
    world: LoadWorld, late_s: float, settled: float
) -> None:
    world.pod("a", deleted_s=world.now_s)
    world.pass_time(late_s)
    measure(world, 5200.0, a=2000.0, b=3000.0)

    assert world.load().settled.cpu_milli == settled


def test_time_alone_ends_the_patience_with_a_terminating_pod(world: LoadWorld) -> None:
    world.pod("a", deleted_s=world.now_s)
    before = world.load().settled.cpu_milli
    world.pass_time(61.0)

    assert (before, world.load().settled.cpu_milli) == (3200.0, 5200.0)


def test_a_terminating_pod_that_uses_less_by_now_takes_less_away(world: LoadWorld) -> None:
    world.pod("a", deleted_s=world.now_s + GRACE_S)
    world.pass_time(15.0)
    measure(world, 3300.0, a=100.0, b=3000.0)

    assert world.load().settled.cpu_milli == 3200.0


def test_a_terminating_pod_whose_processes_have_ended_is_not_taken_off_twice(
    world: LoadWorld,
) -> None:
    world.pod("a", deleted_s=world.now_s + GRACE_S)
    for _ in range(3):
        world.pass_time(15.0)
        measure(world, 3200.0, b=3000.0)

    assert world.load().settled.cpu_milli == 3200.0


def test_a_terminating_pod_that_runs_has_left_for_goals_while_no_pod_is_measured(
    world: LoadWorld,
) -> None:
    state, deleted_s = running_since(world.now_s - 3600.0), world.now_s + GRACE_S
    world.pod("a", deleted_s=deleted_s, state=state)
    for _ in range(8):
        world.pass_time(15.0)
        measure(world, 5200.0)

    # Its neighbor could be moved: what was measured of it is still fresh.
    assert world.pod_load("b").basis is Basis.MEASURED
    assert world.load().settled.cpu_milli == 3200.0


def test_a_terminating_pod_that_was_never_measured_takes_nothing_away() -> None:
    world = LoadWorld()
    world.node("n1")
    world.pod("a", requests=("4", "4Gi"), deleted_s=world.now_s + GRACE_S)
    world.measure({"n1": (5200.0, 5200.0)})

    assert world.load().settled.cpu_milli == 5200.0


def test_new_pods_that_terminate_take_no_more_with_them_than_was_added(world: LoadWorld) -> None:
    deleted_s = world.now_s + GRACE_S
    for number in range(100):
        world.pod(f"new-{number}", scheduled_s=world.now_s, deleted_s=deleted_s)

    # Each is estimated at 250m, and all together at what the node has.
    assert world.load().cpu_milli == pytest.approx(15_200.0)
    assert world.load().settled.cpu_milli == pytest.approx(5200.0)


@pytest.mark.parametrize("shares", [(9000.0, 3000.0), (2000.0, 30_000.0)])
def test_what_is_left_is_never_below_zero(world: LoadWorld, shares: tuple[float, float]) -> None:
    world.pod("a", deleted_s=world.now_s + GRACE_S)
    world.pod("b", deleted_s=world.now_s + GRACE_S)
    measure(world, 100.0, a=shares[0], b=shares[1])

    assert world.load().settled.cpu_milli == 0.0
    assert world.load().cpu_milli == 100.0


def test_requests_leave_with_their_pod_where_nothing_is_measured() -> None:
    world = LoadWorld(from_requests=True)
    world.node("n1", cpu="10")
    world.pod("a", requests=("2", "1Gi"))
    world.pod("b", requests=("3", "1Gi"), deleted_s=world.now_s + GRACE_S)

    assert (world.load().cpu_milli, world.load().settled.cpu_milli) == (5000.0, 2000.0)


# What has left


def test_a_pod_that_left_after_the_window_is_taken_off_in_full(world: LoadWorld) -> None:
    world.view()
    world.leave("a")

    assert world.load().cpu_milli == 3200.0
    assert world.load().mem_bytes == 3200.0 * MIB
    assert [(d.pod, d.change) for d in world.load().differences] == [("default/a", Change.LEFT)]


def test_a_pod_that_left_is_forgotten_once_a_window_began_after_it(world: LoadWorld) -> None:
    world.leave("a")
    world.view()
    world.pass_time(30.0)
    measure(world, 3200.0, b=3000.0)

    assert world.load().cpu_milli == 3200.0
    assert world.load().differences == ()


def test_a_pod_that_crashes_has_left(world: LoadWorld) -> None:
    world.view()
    world.pod("a", state=waiting("CrashLoopBackOff"))

    assert world.load().cpu_milli == 3200.0
    world.pass_time(30.0)
    measure(world, 3200.0, b=3000.0)
    assert world.load().cpu_milli == 3200.0


# What has arrived


@pytest.mark.parametrize(
    ("evicted_ago_s", "made_ago_s", "left"),
    [(40.0, 3600.0, True), (3000.0, 3600.0, False), (40.0, 20.0, False)],
    ids=["just now", "long ago", "from another node of that name"],
)
def test_a_new_leader_knows_what_was_moved_before_it_came(
    evicted_ago_s: float, made_ago_s: float, *, left: bool
) -> None:
    world = LoadWorld()
    world.node("n1", cpu="10", created_s=world.now_s - made_ago_s)
    world.pod("b")
    spec = spec_of(
        pod=PodRef(namespace="default", name="a", uid="u-a"),
        source="n1",
        load=Amounts(cpu_milli=2000.0, memory_bytes=0.0),
    )
    evicted = datetime.fromtimestamp(world.now_s - evicted_ago_s, UTC)
    status = MigrationStatus(phase="Completed", evicted_at=evicted)
    world.state.migrations.upsert(migration(spec, status=status))
    # Rates over two minutes, as of Prometheus: the pod is in most of them.
    world.measure({"n1": (8000.0, 8000.0)}, {"b": (3000.0, 3000.0)}, window_s=120.0)

    expected = 8000.0 - 2000.0 * 100.0 / 120.0 if left else 8000.0
    assert world.load().settled.cpu_milli == pytest.approx(expected)
    assert [d.pod for d in world.load().differences] == ["default/a"] * left

    world.pass_time(121.0)
    world.measure({"n1": (6000.0, 8000.0)}, {"b": (3000.0, 3000.0)}, window_s=120.0)

    assert world.load().cpu_milli == 6000.0


def test_a_pod_that_crashed_and_runs_again_has_not_left(world: LoadWorld) -> None:
    for state in (waiting("CrashLoopBackOff"), running_since(world.now_s + 10.0)):
        world.pod("a", state=state, scheduled_s=world.now_s - 3600.0)
        world.load()
        world.pass_time(10.0)

    assert (world.load().cpu_milli, world.load().mem_bytes) == (5200.0, 5200.0 * MIB)
    assert world.load().differences == ()


def test_a_pod_that_no_window_contains_yet_is_added(world: LoadWorld) -> None:
    world.pod("new", scheduled_s=world.now_s, requests=("1", "1Gi"))

    assert world.load().cpu_milli == 5200.0 + 850.0
    assert [(d.pod, d.basis) for d in world.load().differences] == [("default/new", Basis.SPEC)]


def test_what_a_sample_shows_of_a_new_pod_is_not_counted_twice(world: LoadWorld) -> None:
    world.pod("new", scheduled_s=world.now_s, requests=("1", "1Gi"))
    world.pass_time(5.0)
    measure(world, 5200.0 + 400.0, a=2000.0, b=3000.0)

    assert world.load().cpu_milli == pytest.approx(5200.0 + 850.0)


def test_a_sample_tells_what_a_new_pod_uses_that_asks_for_far_more(world: LoadWorld) -> None:
    start_s = world.now_s
    world.pod("new", scheduled_s=start_s, requests=("4", "1Gi"), state=running_since(start_s))
    world.pass_time(5.0)
    measure(world, 5200.0 + 50.0, a=2000.0, b=3000.0)

    assert world.load().cpu_milli == pytest.approx(5200.0 + 100.0)


@pytest.mark.parametrize("noise", [0.0, -50.0])
def test_a_new_pod_that_a_sample_shows_nothing_of_uses_nothing(
    world: LoadWorld, noise: float
) -> None:
    start_s = world.now_s
    world.pod("new", scheduled_s=start_s, requests=("4", "1Gi"), state=running_since(start_s))
    world.pass_time(5.0)
    measure(world, 5200.0 + noise, a=2000.0, b=3000.0)

    assert world.load().cpu_milli == pytest.approx(5200.0 + noise)


def test_a_sample_tells_what_new_pods_use_while_those_that_they_replace_leave(
    world: LoadWorld,
) -> None:
    start_s = world.now_s
    world.pod("new", scheduled_s=start_s, requests=("4", "1Gi"), state=running_since(start_s))
    world.view()
    world.leave("a")
    world.view()
    world.pass_time(5.0)
    measure(world, 5200.0, b=3000.0)

    # Half of the window each: 2000m of the old pod, and as much of the new one.
    assert world.load().cpu_milli == pytest.approx(5200.0, abs=1.0)


def test_a_container_that_starts_long_after_its_pod_was_scheduled_is_new(world: LoadWorld) -> None:
    world.pod(
        "slow",
        scheduled_s=world.now_s - 90.0,
        requests=("1", "1Gi"),
        state=running_since(world.now_s),
    )

    assert world.load().cpu_milli == 5200.0 + 850.0


def test_a_container_that_restarts_is_not_new(world: LoadWorld) -> None:
    world.pod(
        "crashing",
        scheduled_s=world.now_s - 900.0,
        requests=("4", "1Gi"),
        state=running_since(world.now_s),
    )

    assert world.load().cpu_milli == 5200.0


def test_a_container_that_crashes_again_and_again_is_new_once(world: LoadWorld) -> None:
    scheduled_s = world.now_s
    seen = []
    for restarts in range(4):
        state = running_since(world.now_s)
        asked = "4", "4Gi"
        world.pod("c", state=state, restarts=restarts, scheduled_s=scheduled_s, requests=asked)
        seen.append(world.load().cpu_milli)
        world.pass_time(15.0)
        measure(world, 5200.0, a=2000.0, b=3000.0)

    assert seen == [8600.0, 5200.0, 5200.0, 5200.0]


def test_new_pods_cannot_use_more_than_the_node_has(world: LoadWorld) -> None:
    for index in range(3):
        world.pod(f"p{index}", scheduled_s=world.now_s, requests=("1000000000", "1Ei"))

    assert world.load().cpu_percent == pytest.approx(52.0 + 100.0)
    assert world.pod_load("p0").cpu_milli == 10_000.0


# What does not run


@pytest.mark.parametrize(
    "reason",
    ["CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "Error"],
)
def test_containers_that_do_not_run_use_nothing(world: LoadWorld, reason: str) -> None:
    world.pod("new", scheduled_s=world.now_s, requests=("4", "4Gi"), state=waiting(reason))

    assert world.load().cpu_milli == 5200.0
    assert world.pod_load("new").basis is Basis.NOTHING


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_pod_that_is_starting_counts_for_five_minutes(world: LoadWorld, reason: str) -> None:
    world.pod("new", scheduled_s=world.now_s, requests=("1", "1Gi"), state=waiting(reason))
    assert world.load().cpu_milli == 6050.0
    world.pass_time(301.0)
    measure(world, 5200.0, a=2000.0, b=3000.0)

    assert world.load().cpu_milli == 5200.0


# A fresh sample is never contradicted


def test_without_samples_of_pods_a_node_is_what_its_sample_says() -> None:
    world = LoadWorld()
    world.node("hot")
    world.node("idle")
    for index in range(6):
        world.pod(f"small-{index}", "hot", requests=("50m", "64Mi"))
        world.pod(f"large-{index}", "idle", requests=("1", "1Gi"))
    world.measure({"hot": (7600.0, 1000.0), "idle": (80.0, 500.0)})

    assert world.load("hot").cpu_percent == pytest.approx(95.0)
    assert world.load("idle").cpu_percent == pytest.approx(1.0)
    assert world.load("hot").known
    assert world.load("idle").known


def test_one_crashing_pod_leaves_everything_else_as_it_was(world: LoadWorld) -> None:
    world.pod("broken", requests=("7", "7Gi"), state=waiting("CrashLoopBackOff"))
    world.pass_time(15.0)
    measure(world, 5200.0, a=2000.0, b=3000.0)

    assert world.load().cpu_milli == 5200.0
    assert world.load().overhead.cpu_milli == 200.0


pods = st.tuples(
    st.floats(-400.0, 30.0),  # scheduled, seconds from the end of the window
    st.sampled_from([None, 0.0, 500.0, 4000.0]),  # measured
    st.sampled_from(["100m", "4", None]),  # asked for
    st.sampled_from([None, 5.0, 7200.0]),  # deleted so long from now
    st.sampled_from([None, "CrashLoopBackOff", "ContainerCreating"]),
)


@given(st.lists(pods, max_size=8), st.floats(0.0, 9000.0), st.sets(st.integers(0, 7)))
def test_the_load_is_the_sample_and_named_pods_whatever_there_is(
    some: list[tuple[float, float | None, str | None, float | None, str | None]],
    node: float,
    leaving: set[int],
) -> None:
    world = LoadWorld()
    world.node("n1", cpu="10")
    for index, (ago_s, _, asked, deleted_s, reason) in enumerate(some):
        world.pod(
            f"p{index}",
            scheduled_s=world.now_s + ago_s,
            requests=(asked, None),
            deleted_s=None if deleted_s is None else world.now_s + deleted_s,
            state=None if reason is None else waiting(reason),
        )
    figures = {f"p{i}": (m, m) for i, (_, m, *_) in enumerate(some) if m is not None}
    world.measure({"n1": (node, node)}, figures, window_s=20.0)
    world.view()
    world.pass_time(5.0)
    for index in leaving:
        if index < len(some):
            world.leave(f"p{index}")

    load = world.load()
    settled = [d for d in load.differences if d.change is Change.LEAVING]
    now = [d for d in load.differences if d.change is not Change.LEAVING]

    assert load.known
    assert load.cpu_milli == pytest.approx(max(0.0, node + sum(d.cpu_milli for d in now)))
    assert 0.0 <= load.settled.cpu_milli <= load.cpu_milli
    expected = max(0.0, load.cpu_milli + sum(d.cpu_milli for d in settled))
    assert load.settled.cpu_milli == pytest.approx(expected)
    assert load.cpu_milli <= node + 10_000.0 + 1e-6
    assert len({d.uid for d in settled}) == len(settled)
    assert all(d.cpu_milli >= 0.0 for d in now if d.change is Change.ARRIVING)
    assert all(d.cpu_milli <= 0.0 for d in now if d.change is Change.LEFT)
