# SPDX-License-Identifier: Apache-2.0
"""Which containers of a pod run, and why the others do not."""

from __future__ import annotations

from typing import Any

import pytest

from common.cache.state import ClusterState
from common.cluster.container_states import StalledContainer
from common.cluster.interning import Interner
from common.cluster.records import PodRecord, pod_record
from simulator import build
from tests.support.worlds.wire import wire_pod

RUNNING = {"running": {"startedAt": "2026-11-16T08:00:00Z"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
FAILED = {"terminated": {"exitCode": 1, "reason": "Error"}}


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": "back-off 5m0s"}}


def record(
    *states: Any,
    init: tuple[Any, ...] = (),
    sidecar: bool = False,
    policy: str = "Always",
    phase: str = "Running",
    shared: Interner | None = None,
) -> PodRecord:
    main = [build.container(f"app-{number}") for number, _ in enumerate(states)]
    first = [build.container(f"init-{number}", sidecar=sidecar) for number, _ in enumerate(init)]
    spec = {"containers": main, "initContainers": first, "restartPolicy": policy}
    status = {
        "containerStatuses": [_status(f"app-{n}", state) for n, state in enumerate(states)],
        "initContainerStatuses": [_status(f"init-{n}", state) for n, state in enumerate(init)],
    }
    pod = wire_pod(build.pod("p", node="n", spec=spec), status=status, phase=phase)
    return pod_record(pod, Interner() if shared is None else shared)


def _status(name: str, state: Any) -> dict[str, Any]:
    # A running container's image is reported by its resolved name.
    return {"name": name, "state": state, "image": f"docker.io/{build.IMAGE}@sha256:0"}


def reasons(pod: PodRecord) -> list[tuple[str, str]]:
    return [(each.name, each.reason) for each in pod.stalled]


def test_a_healthy_pod_has_nothing_stalled() -> None:
    found = record(RUNNING, RUNNING)
    assert (found.running_containers, found.stalled) == (2, ())
    assert not found.is_running_nothing


def test_a_stalled_container_is_named_with_the_image_of_its_spec() -> None:
    found = record(waiting("ImagePullBackOff"))
    assert found.stalled == (StalledContainer("app-0", build.IMAGE, "ImagePullBackOff"),)
    assert found.is_running_nothing


def test_a_pod_with_one_running_container_runs_something() -> None:
    found = record(RUNNING, waiting("CrashLoopBackOff"))
    assert reasons(found) == [("app-1", "CrashLoopBackOff")]
    assert found.running_containers == 1
    assert not found.is_running_nothing


@pytest.mark.parametrize("state", [None, {}, {"waiting": None}, {"waiting": {"reason": None}}])
def test_without_a_state_a_container_waits(state: Any) -> None:
    found = record(state)
    assert reasons(found) == [("app-0", "")]
    assert found.is_running_nothing


@pytest.mark.parametrize("statuses", [None, []])
def test_without_statuses_nothing_is_said(statuses: Any) -> None:
    status = {"containerStatuses": statuses, "initContainerStatuses": statuses}
    found = pod_record(wire_pod(build.pod("p", node="n"), status=status), Interner())
    assert (found.running_containers, found.stalled) == (None, ())
    assert not found.is_running_nothing


def test_an_init_container_that_cannot_start_is_stalled_before_the_pod_it_holds_up() -> None:
    found = record(waiting("PodInitializing"), init=(DONE, waiting("ErrImagePull")))
    assert reasons(found) == [("init-1", "ErrImagePull"), ("app-0", "PodInitializing")]


def test_an_init_container_that_runs_is_running() -> None:
    found = record(waiting("PodInitializing"), init=(RUNNING,))
    assert found.running_containers == 1


def test_a_sidecar_that_has_ended_is_stalled() -> None:
    found = record(RUNNING, init=(DONE,), sidecar=True)
    assert reasons(found) == [("init-0", "Completed")]


@pytest.mark.parametrize(
    ("policy", "state", "stalled"),
    [
        ("Always", DONE, True),
        ("Always", FAILED, True),
        ("OnFailure", DONE, False),
        ("OnFailure", FAILED, True),
        ("Never", DONE, False),
        ("Never", FAILED, False),
    ],
)
def test_a_container_that_has_ended_is_stalled_if_it_will_be_restarted(
    policy: str, state: Any, stalled: bool
) -> None:
    found = record(RUNNING, state, policy=policy)
    assert bool(found.stalled) is stalled
    assert found.running_containers == 1


def test_a_finished_pod_runs_nothing_and_nothing_of_it_is_stalled() -> None:
    found = record(FAILED, phase="Failed")
    assert found.stalled == ()
    assert found.is_running_nothing


def test_whether_containers_run_is_no_part_of_the_shape() -> None:
    shared = Interner()
    one, other = record(RUNNING, shared=shared), record(waiting("Any"), shared=shared)
    assert one.shape is other.shape


def test_equal_states_are_one_value_in_memory() -> None:
    shared = Interner()
    first = record(waiting("ErrImagePull"), shared=shared)
    assert record(waiting("ErrImagePull"), shared=shared).stalled is first.stalled


def test_a_snapshot_lists_the_pods_that_are_stalled_as_long_as_they_are() -> None:
    state = ClusterState()

    def listed(container: Any, **metadata: Any) -> list[str]:
        status = {"containerStatuses": [_status("app", container)]}
        state.pods.upsert(wire_pod(build.pod("p", node="n"), status=status, **metadata))
        return [pod.name for pod in state.snapshot().stalled.values()]

    assert listed(waiting("ErrImagePull")) == ["p"]
    assert listed(RUNNING) == []
    assert listed(waiting("CrashLoopBackOff")) == ["p"]
    assert listed(waiting("CrashLoopBackOff"), deletionTimestamp="2026-11-16T09:00:00Z") == []
    assert listed(waiting("CrashLoopBackOff")) == ["p"]
    state.pods.delete(wire_pod(build.pod("p", node="n")))
    assert not state.snapshot().stalled
