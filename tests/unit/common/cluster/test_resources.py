# SPDX-License-Identifier: Apache-2.0
"""What a pod asks for, as kube-scheduler counts it.

The expected figures are what component-helpers v0.36.4 (`PodRequests` with the options of
the scheduler) printed for these pods.
"""

from __future__ import annotations

from typing import Any

import pytest

from common.api.objects import Container, Pod, PodSpec, Quantities, ResourceRequirements
from common.cluster.resources import (
    MAX_ALLOCATABLE,
    MAX_REQUEST,
    Resources,
    amounts,
    is_scalar,
    pod_limits,
    pod_requests,
    scored_requests,
)
from tests.support.worlds.wire import wire

MI = 2**20


def asks(name: str = "c", *, always: bool = False, **requests: str) -> dict[str, Any]:
    restart = {"restartPolicy": "Always"} if always else {}
    named = {key.replace("gpu", "example.com/gpu"): value for key, value in requests.items()}
    return {"name": name, "resources": {"requests": named}, **restart}


def reported(name: str, now: dict[str, str], allocated: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": now}, "allocatedResources": allocated}


def pending_resize(reason: str) -> list[dict[str, str]]:
    return [{"type": "PodResizePending", "status": "True", "reason": reason}]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, int, int, int]]] = {
    "containers add up": (
        {"containers": [asks("a", cpu="100m", memory="64Mi"), asks("b", cpu="1.5")]},
        {},
        (1600, 64 * MI, 1600, 264 * MI),
    ),
    "nothing asked is nothing charged, and a default for scores": (
        {"containers": [asks("a")]},
        {},
        (0, 0, 100, 200 * MI),
    ),
    "an explicit zero is not a missing request": (
        {"containers": [asks("a", cpu="0", memory="0")]},
        {},
        (0, 0, 0, 0),
    ),
    "the largest init container sets a minimum": (
        {
            "containers": [asks("a", cpu="100m", memory="64Mi")],
            "initContainers": [
                asks("x", cpu="2", memory="32Mi"),
                asks("y", cpu="1", memory="1Gi"),
            ],
        },
        {},
        (2000, 1024 * MI, 2000, 1024 * MI),
    ),
    "sidecars add to the containers": (
        {
            "containers": [asks("a", cpu="100m", memory="64Mi")],
            "initContainers": [asks("s", cpu="200m", memory="16Mi", always=True)],
        },
        {},
        (300, 80 * MI, 300, 80 * MI),
    ),
    "an init container runs beside the sidecars started before it": (
        {
            "containers": [asks("a", cpu="100m", memory="64Mi")],
            "initContainers": [
                asks("s", cpu="200m", memory="16Mi", always=True),
                asks("x", cpu="1", memory="64Mi"),
                asks("t", cpu="5", memory="1Mi", always=True),
            ],
        },
        {},
        (5300, 81 * MI, 5300, 81 * MI),
    ),
    "an init container before a sidecar does not run beside it": (
        {
            "containers": [asks("a", cpu="100m", memory="64Mi")],
            "initContainers": [
                asks("x", cpu="1", memory="64Mi"),
                asks("s", cpu="200m", memory="16Mi", always=True),
            ],
        },
        {},
        (1000, 80 * MI, 1000, 80 * MI),
    ),
    "overhead comes on top": (
        {
            "containers": [asks("a", cpu="100m", memory="64Mi")],
            "overhead": {"cpu": "250m", "memory": "120Mi"},
        },
        {},
        (350, 184 * MI, 350, 184 * MI),
    ),
    "pod-level requests replace the sum, overhead still added": (
        {
            "containers": [asks("a", cpu="100m", memory="64Mi"), asks("b", cpu="3")],
            "resources": {"requests": {"cpu": "2"}},
            "overhead": {"cpu": "1m"},
        },
        {},
        (2001, 64 * MI, 2001, 64 * MI),
    ),
    "a pod-level resource that no container names is not assumed": (
        {"containers": [asks("a")], "resources": {"requests": {"memory": "1Gi"}}},
        {},
        (0, 1024 * MI, 100, 1024 * MI),
    ),
    "parts of a byte are added before rounding up": (
        {"containers": [asks("a", memory="1500m"), asks("b", memory="1400m")]},
        {},
        (0, 3, 200, 3),
    ),
    "a resize under way counts the larger of wanted, allocated and actuated": (
        {"containers": [asks("a", cpu="1", memory="64Mi")]},
        {
            "containerStatuses": [
                reported("a", {"cpu": "2", "memory": "32Mi"}, {"cpu": "500m", "memory": "128Mi"})
            ]
        },
        (2000, 128 * MI, 2000, 128 * MI),
    ),
    "an infeasible resize counts what is there, not what is wanted": (
        {"containers": [asks("a", cpu="4", memory="64Mi")]},
        {
            "containerStatuses": [
                reported("a", {"cpu": "1", "memory": "64Mi"}, {"cpu": "1", "memory": "64Mi"})
            ],
            "conditions": pending_resize("Infeasible"),
        },
        (1000, 64 * MI, 1000, 64 * MI),
    ),
    "a deferred resize counts what is wanted": (
        {"containers": [asks("a", cpu="4", memory="64Mi")]},
        {
            "containerStatuses": [
                reported("a", {"cpu": "1", "memory": "64Mi"}, {"cpu": "1", "memory": "64Mi"})
            ],
            "conditions": pending_resize("Deferred"),
        },
        (4000, 64 * MI, 4000, 64 * MI),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_requests_are_counted_as_the_scheduler_counts_them(name: str) -> None:
    spec, status, expected = CASES[name]
    pod = wire(Pod, {"metadata": {"name": "p"}, "spec": spec, "status": status})
    found = pod_requests(pod.spec, pod.status)
    scored = scored_requests(pod.spec, pod.status)
    assert (found.cpu_milli, found.mem_bytes, *scored) == expected


def test_extended_resources_are_sorted_and_counted_whole() -> None:
    spec = {"containers": [asks("a", gpu="1"), asks("b", gpu="2")]}
    spec["containers"][0]["resources"]["requests"]["hugepages-2Mi"] = "4Mi"
    pod = wire(Pod, {"metadata": {"name": "p"}, "spec": spec})
    found = pod_requests(pod.spec, pod.status)
    assert found.scalars == (("example.com/gpu", 3), ("hugepages-2Mi", 4 * MI))


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("example.com/gpu", True),
        ("hugepages-1Gi", True),
        ("attachable-volumes-csi-x", True),
        ("kubernetes.io/batch-cpu", True),
        ("requests.example.com/gpu", False),
        ("cpu", False),
        ("pods", False),
        ("gpu", False),
    ],
)
def test_which_names_the_scheduler_counts_beside_the_native_ones(name: str, counted: bool) -> None:
    assert is_scalar(name) is counted


def test_a_pod_has_a_limit_only_if_every_running_container_has_one() -> None:
    limited = {"limits": {"cpu": "1", "memory": "64Mi"}}
    spec = {
        "containers": [
            {"name": "a", "resources": limited},
            {"name": "b", "resources": {"limits": {"cpu": "500m"}}},
        ]
    }
    pod = wire(Pod, {"metadata": {"name": "p"}, "spec": spec})
    found = pod_limits(pod.spec)
    assert (found.cpu_milli, found.mem_bytes) == (1500, 0)


@pytest.mark.parametrize("text", ["9" * 400, str(2**62), "8Ei", "1e300", "1e999999999"])
def test_amounts_of_any_size_stay_within_what_arrays_can_hold(text: str) -> None:
    asked: Quantities = dict.fromkeys(("cpu", "memory", "x.io/y", "ephemeral-storage"), text)
    spec = PodSpec(containers=[Container(resources=ResourceRequirements(requests=asked))] * 2)
    found = pod_requests(spec)
    largest = max(found.cpu_milli, found.mem_bytes, found.ephemeral_bytes, found.scalars[0][1])
    assert largest <= MAX_REQUEST
    assert max(scored_requests(spec)) <= MAX_REQUEST
    node = Resources.from_amounts(amounts(asked), MAX_ALLOCATABLE)
    assert node.mem_bytes <= MAX_ALLOCATABLE
