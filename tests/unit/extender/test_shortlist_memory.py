# SPDX-License-Identifier: Apache-2.0
"""What shortlists remember: pods, siblings, terms and images, each within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from common.cluster.records import PodRecord, PodUid
from extender import first_calls, preferences, siblings
from extender.first_calls import FirstCalls
from extender.preferences import Images, OthersTerms
from extender.siblings import Rejected, Siblings
from simulator import build
from tests.support.stands.shortlist import ShortlistWorld
from tests.support.worlds.advisor import AdvisorWorld

WANTS_WEB = {
    "weight": 1,
    "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
    },
}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def record(world: AdvisorWorld, name: str) -> PodRecord:
    found = world.state.pods.records.get(f"default/{name}")
    assert found is not None
    return found


def test_a_pod_is_remembered_until_it_has_a_node() -> None:
    world, calls = AdvisorWorld(), FirstCalls()
    world.state.pods.listen(calls.on_pod)
    pod = world.pod("p")
    assert calls.begin(pod.uid)
    assert not calls.begin(pod.uid)
    world.bind("p", "a")
    assert len(calls) == 0


def test_a_deleted_pod_is_forgotten() -> None:
    world, calls = AdvisorWorld(), FirstCalls()
    world.state.pods.listen(calls.on_pod)
    calls.begin(world.pod("p").uid)
    world.delete("p")
    assert len(calls) == 0


def test_the_number_of_remembered_pods_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_calls, "MAX_PODS", 3)
    calls = FirstCalls()
    assert all(calls.begin(PodUid(str(number))) for number in range(5))
    assert len(calls) == 3
    assert not calls.begin(PodUid("4"))
    assert calls.begin(PodUid("0"))


def test_a_pod_has_a_shortlist_until_its_next_call() -> None:
    calls, uid = FirstCalls(), PodUid("u")
    calls.begin(uid)
    assert calls.middle(uid) is None
    calls.shortened(uid, 0)
    assert calls.middle(uid) == 0
    calls.begin(uid)
    assert calls.middle(uid) is None


def test_siblings_are_counted_by_node() -> None:
    world = ShortlistWorld(5)
    counter = Siblings(world.state.pods)
    world.state.pods.listen(counter.on_pod)
    index = {name: row for row, name in enumerate(world.names)}
    world.place("web-0", "n001", owner="web")
    pod = record(world, "web-0")
    assert _counts(counter, pod, index) == [0, 1, 0, 0, 0, 0]
    world.place("web-1", "n001", owner="web")
    world.place("web-2", "n004", owner="web")
    world.place("api-0", "n004", owner="api")
    world.place("web-3", "elsewhere", owner="web")
    world.place("web-4", "", owner="web")
    assert _counts(counter, pod, index) == [0, 2, 0, 0, 1, 0]
    world.place("web-1", "n001", owner="web", status={"phase": "Succeeded"})
    world.state.pods.forget("default/web-2")
    assert _counts(counter, pod, index) == [0, 1, 0, 0, 0, 0]


def test_a_new_board_counts_again() -> None:
    world = ShortlistWorld(3)
    counter = Siblings(world.state.pods)
    world.place("web-0", "n001", owner="web")
    pod = record(world, "web-0")
    assert _counts(counter, pod, {"n000": 0, "n001": 1}) == [0, 1, 0]
    assert _counts(counter, pod, {"n001": 0, "n002": 1}) == [1, 0, 0]


def test_the_number_of_counted_controllers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "MAX_CONTROLLERS", 2)
    world = ShortlistWorld(3)
    counter = Siblings(world.state.pods)
    index = {name: row for row, name in enumerate(world.names)}
    for owner in ("a", "b", "c"):
        world.place(f"{owner}-0", "n001", owner=owner)
        counter.of(record(world, f"{owner}-0"), index)
    assert len(counter._counts) == 2


def test_a_pod_without_a_controller_has_no_siblings() -> None:
    world = ShortlistWorld(1)
    world.place("alone", "n000")
    assert Siblings(world.state.pods).of(record(world, "alone"), {"n000": 0}) is None


def test_terms_go_with_the_last_pod_that_has_them() -> None:
    world, terms = ShortlistWorld(3), OthersTerms()
    world.state.pods.listen(terms.on_pod)
    world.place("web", "", labels={"app": "web"})
    web = record(world, "web")
    affinity = {"affinity": {"podAffinity": {PREFERRED: [WANTS_WEB]}}}
    for number in range(3):
        world.place(f"fan-{number}", f"n00{number}", spec=affinity)
    assert terms.concern(web)
    world.state.pods.forget("default/fan-0")
    world.place("fan-1", "n001", spec=affinity, status={"phase": "Failed"})
    assert terms.concern(web)
    world.state.pods.forget("default/fan-2")
    assert not terms.concern(web)
    assert not terms._shapes
    assert not terms._named


@pytest.mark.parametrize("bound", ["_MAX_SELECTORS", "_MAX_NAMESPACES"])
def test_more_terms_than_can_be_compared_concern_every_pod(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(preferences, bound, 2)
    world, terms = ShortlistWorld(1), OthersTerms()
    world.state.pods.listen(terms.on_pod)
    world.place("other", "", labels={"app": "other"})
    other = record(world, "other")
    for number in range(3):
        selector = {"matchLabels": {"app": f"web-{number}"}}
        far = {"namespaces": ["a", "b", "c"], "labelSelector": {}}
        changed = {"labelSelector": selector} if bound == "_MAX_SELECTORS" else far
        term = {**WANTS_WEB, "podAffinityTerm": {**WANTS_WEB["podAffinityTerm"], **changed}}  # type: ignore[dict-item]
        assert number == 0 or terms.concern(other) is (bound == "_MAX_NAMESPACES")
        world.place(
            f"fan-{number}", "n000", spec={"affinity": {"podAffinity": {PREFERRED: [term]}}}
        )
    assert terms.concern(other)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "matter"),
    [
        ([500, 500, 0, 0], True),
        ([500, 500, 500, 500], False),
        ([0, 0, 0, 0], False),
        ([22, 22, 0, 0], False),
        ([100, 0, 0, 0], False),
        ([140, 0, 0, 0], True),
    ],
)
def test_images_matter_where_the_plugin_gives_points(sizes: list[int], matter: bool) -> None:
    """The plugin counts size × share of nodes: above 23 MiB, in steps of 9.77 MiB."""
    world, images = AdvisorWorld(), Images()
    world.state.nodes.listen(images.on_node)
    for number, size in enumerate(sizes):
        world.node(f"n{number}", images={build.IMAGE: size * MIB} if size else {})
    world.state.pods.upsert(world._pods[world.pod("p").name])
    shape = record(world, "p").shape
    assert images.matter(shape) is matter
    for number in range(len(sizes)):
        world.state.nodes.forget(f"n{number}")
    assert not images._images
    assert not images.matter(shape)


def test_an_image_volume_matters_beside_a_larger_image_that_all_nodes_have() -> None:
    """Kubernetes 1.37 counts up to 1,000 MB for it as well, 1.36 only for containers."""
    world, images, volume = ShortlistWorld(4), Images(), "registry.invalid/model:1"
    for number, name in enumerate(world.names):
        mounted = {volume: 800 * MIB} if number < 2 else {}
        world.node(name, images={build.IMAGE: 1200 * MIB, **mounted})
        images.on_node(None, world.state.nodes.records.get(name))
    spec = {"volumes": [{"name": "model", "image": {"reference": volume}}]}
    world.place("with", "n000", spec=spec)
    world.place("without", "n000")
    assert images.matter(record(world, "with").shape)
    assert not images.matter(record(world, "without").shape)


def _counts(counter: Siblings, pod: PodRecord, index: dict[str, int]) -> list[int]:
    found: Any = counter.of(pod, index)
    return [int(count) for count in found]


def test_the_number_of_remembered_rejections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "MAX_REJECTED", 3)
    world = ShortlistWorld(1)
    rejected = Rejected(world.clock)
    pods = []
    for number in range(5):
        world.place(f"p{number}", "n000", owner=f"web-{number}", status={"phase": "Pending"})
        pods.append(record(world, f"p{number}"))
        rejected.on_pod(pods[-1], None)
    assert [rejected.concern(pod) for pod in pods] == [False, False, True, True, True]
