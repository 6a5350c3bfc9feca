# SPDX-License-Identifier: Apache-2.0
"""Commands on a cluster with an installation: doctor, plan and apply, drain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from common.api.contract import MAINTENANCE_LABEL
from common.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    LEASES,
    MIGRATIONS,
    NAMESPACES,
    NODES,
    PODS,
)
from simulator import build
from simulator.api import DEFINITIONS, is_ready
from simulator.cluster import SimulatedCluster
from simulator.faults import MetricsAbsent, MetricsMissing
from tests.support.stands import installed
from tests.support.stands.command import Json, at, evenkeel
from tests.support.stands.extender import eventually
from tests.support.stands.installed import NAMESPACE
from tests.support.stands.simulated_cluster import cluster_of, measured_pods, until
from tests.support.worlds.migrations import definition

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOT = 7
World = tuple[SimulatedCluster, tuple[str, str]]
Fault = Callable[[SimulatedCluster], Callable[[], None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    nodes = [build.node(f"node-{i}", cpu="8") for i in range(4)]
    async with cluster_of(nodes) as cluster:
        installed.install(cluster)
        for name in ("node-1", "node-2", "node-3"):
            _cordon(cluster, name, on=True)
        cluster.store.create(DEPLOYMENTS, _busy("hot", HOT))
        await until(cluster, lambda: _ready(cluster, "hot") == HOT)
        for name in ("node-1", "node-2", "node-3"):
            _cordon(cluster, name, on=False)
        await until(cluster, lambda: _available(cluster) == 2)
        await eventually(lambda: _measured(cluster) == (4, HOT), "all nodes and pods are measured")
        yield cluster, at(cluster, tmp_path_factory.mktemp("world"))


@pytest.fixture(autouse=True)
def alive(world: World) -> None:
    """Renew the Leases, which would expire while the tests of a slow machine run."""
    cluster, _ = world
    installed.lead(cluster)
    installed.extend(cluster)


def _busy(name: str, replicas: int) -> Json:
    """Return a Deployment whose pods use what they ask for."""
    return build.deployment(name, replicas, cpu="500m", usage_cpu="1")


def _cordon(cluster: SimulatedCluster, name: str, *, on: bool) -> None:
    node = cluster.store.get(NODES, name)
    cluster.store.update(NODES, {**node, "spec": {**node.get("spec", {}), "unschedulable": on}})


def _ready(cluster: SimulatedCluster, app: str) -> int:
    pods = cluster.store.list(PODS, namespace="default")
    return sum(is_ready(p) for p in pods if p["metadata"]["labels"].get("app") == app)


def _available(cluster: SimulatedCluster) -> int:
    found = cluster.store.list(DEPLOYMENTS, namespace=NAMESPACE)
    return sum(bool(d.get("status", {}).get("availableReplicas")) for d in found)


def _measured(cluster: SimulatedCluster) -> tuple[int, int]:
    """Count the nodes and the hot pods whose usage is served."""
    apps = [pod["metadata"]["labels"].get("app") for pod in measured_pods(cluster)]
    return len(list(cluster.metrics.node_metrics())), apps.count("hot")


def failures(answer: Json) -> set[tuple[str, str]]:
    return {(f["check"], f["words"]) for f in answer["findings"] if f["level"] == "fail"}


async def examined(flags: tuple[str, str]) -> tuple[int, Json]:
    found = await evenkeel(*flags, "doctor", "-o", "json")
    assert found.code in (0, 3), found.err
    return found.code, found.json


async def test_a_sound_installation_has_no_failures(world: World) -> None:
    _, flags = world
    code, answer = await examined(flags)
    assert failures(answer) == set()
    assert code == 0


def no_crd(cluster: SimulatedCluster) -> Callable[[], None]:
    cluster.store.delete(DEFINITIONS, "migrations.evenkeel.io")
    return lambda: void(cluster.store.create(DEFINITIONS, definition()))


def old_crd(cluster: SimulatedCluster) -> Callable[[], None]:
    undo = no_crd(cluster)
    old = definition()
    schema = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["replacementDeadline"]
    cluster.store.create(DEFINITIONS, old)

    def restore() -> None:
        cluster.store.delete(DEFINITIONS, "migrations.evenkeel.io")
        undo()

    return restore


def no_rebalancer(cluster: SimulatedCluster) -> Callable[[], None]:
    cluster.store.delete(DEPLOYMENTS, "evenkeel-rebalancer", namespace=NAMESPACE)
    return lambda: void(cluster.store.create(DEPLOYMENTS, installed.program("rebalancer")))


def other_version(cluster: SimulatedCluster) -> Callable[[], None]:
    cluster.store.delete(DEPLOYMENTS, "evenkeel-extender", namespace=NAMESPACE)
    cluster.store.create(DEPLOYMENTS, installed.program("extender", tag="0.0.1"))

    def restore() -> None:
        cluster.store.delete(DEPLOYMENTS, "evenkeel-extender", namespace=NAMESPACE)
        cluster.store.create(DEPLOYMENTS, installed.program("extender"))

    return restore


def dead_leader(cluster: SimulatedCluster) -> Callable[[], None]:
    installed.lead(cluster, ago_s=300)
    return lambda: installed.lead(cluster)


def two_leaders(cluster: SimulatedCluster) -> Callable[[], None]:
    cluster.store.create(NAMESPACES, build.namespace("other"))
    installed.lead(cluster, namespace="other")
    return lambda: void(cluster.store.delete(NAMESPACES, "other"))


def no_extender(cluster: SimulatedCluster) -> Callable[[], None]:
    cluster.store.delete(LEASES, installed.EXTENDER, namespace=NAMESPACE)
    return lambda: installed.extend(cluster)


def wrong_clock(cluster: SimulatedCluster) -> Callable[[], None]:
    installed.extend(cluster, ago_s=-3600)
    return lambda: installed.extend(cluster)


def not_wired(cluster: SimulatedCluster) -> Callable[[], None]:
    installed.extend(cluster, caller="")
    return lambda: installed.extend(cluster)


def sampled(cluster: SimulatedCluster) -> Callable[[], None]:
    installed.extend(cluster, share=0.4)
    return lambda: installed.extend(cluster)


def skewed(cluster: SimulatedCluster) -> Callable[[], None]:
    installed.extend(cluster, settings="0123456789abcdef")
    return lambda: installed.extend(cluster)


def configured(**settings: Any) -> Fault:
    def plant(cluster: SimulatedCluster) -> Callable[[], None]:
        installed.configure(cluster, installed.config_text(**settings))
        return lambda: installed.configure(cluster)

    return plant


def no_metrics(cluster: SimulatedCluster) -> Callable[[], None]:
    number = cluster.faults.inject(MetricsAbsent())
    return lambda: cluster.faults.withdraw(number)


def unmeasured_node(cluster: SimulatedCluster) -> Callable[[], None]:
    number = cluster.faults.inject(MetricsMissing(node="node-3"))
    return lambda: cluster.faults.withdraw(number)


def void(_: object) -> None:
    """Drop a value."""


FAULTS: list[tuple[Fault, str, str]] = [
    (no_crd, "crd", "the Migration CRD is not installed"),
    (old_crd, "crd", "lacks status.replacementDeadline"),
    (no_rebalancer, "rebalancer", "no rebalancer is installed"),
    (other_version, "versions", "different versions: 0.0.1"),
    (dead_leader, "leader", "was last seen"),
    (two_leaders, "leader", "several namespaces: evenkeel, other"),
    (no_extender, "extenders", "no extender is alive"),
    (wrong_clock, "clocks", "ahead of this machine's"),
    (not_wired, "wiring", "default-scheduler has not called an extender"),
    (sampled, "wiring", "only 40% of the nodes"),
    (skewed, "configuration", "other load settings"),
    (configured(cpuTreshold=70), "configuration", "did you mean cpuThreshold?"),
    (configured(enabledStrategies=[]), "strategies", "no strategy is enabled"),
    (configured(schedulerNames=["mine"]), "schedulers", "no pod is placed by mine"),
    (no_metrics, "metrics", "no metrics"),
    (unmeasured_node, "metrics", "node-3"),
]


@pytest.mark.parametrize(
    ("plant", "check", "words"), FAULTS, ids=[f"{c}-{w[:24]}" for _, c, w in FAULTS]
)
async def test_a_planted_fault_is_found_with_its_fix(
    world: World, plant: Fault, check: str, words: str
) -> None:
    cluster, flags = world
    undo = plant(cluster)
    try:
        code, answer = await examined(flags)
    finally:
        undo()
    assert code == 3
    found = [f for f in answer["findings"] if f["level"] == "fail" and f["check"] == check]
    assert any(words in f["words"] for f in found), answer
    assert all(f["fix"] for f in found)


async def test_where_the_api_server_guides_no_extender_is_missed(world: World) -> None:
    cluster, flags = world
    undo = no_extender(cluster), configured(guide="admission")(cluster)
    try:
        _, answer = await examined(flags)
    finally:
        for each in undo:
            each()
    said = {found["check"]: found["level"] for found in answer["findings"]}
    assert said["guide"] == "ok"
    assert "extenders" not in said
    assert "wiring" not in said


LOAD = ("LoadBalancing", "ResourceOptimization")


async def planned(flags: tuple[str, str], file: Path) -> Json:
    found = await evenkeel(*flags, "plan", "--file", str(file), "-o", "json")
    assert found.code == 0, found.err
    assert found.json["moves"], found.json
    written: Json = yaml.safe_load(file.read_text())  # noqa: ASYNC240 - a small local file
    return written


async def test_a_drained_node_is_previewed_and_nothing_is_changed(world: World) -> None:
    cluster, flags = world
    found = await evenkeel(*flags, "drain", "node-0", "--preview", "-o", "json")
    assert found.code == 0, found.err
    assert {m["source"] for m in found.json["moves"]} == {"node-0"}
    assert found.json["peak"]["node"] in ("node-1", "node-2", "node-3")
    assert MAINTENANCE_LABEL not in cluster.store.get(NODES, "node-0")["metadata"]["labels"]
    text = await evenkeel(*flags, "drain", "node-0", "--preview")
    assert "Fullest of the other nodes afterwards" in text.out


async def test_a_drain_that_nothing_would_act_on_sets_no_label(world: World) -> None:
    cluster, flags = world
    found = await evenkeel(*flags, "drain", "node-0")
    assert found.code == 3
    assert "NodeMaintenance is not among enabledStrategies" in found.err
    assert MAINTENANCE_LABEL not in cluster.store.get(NODES, "node-0")["metadata"]["labels"]


async def test_a_drain_without_a_leader_or_during_a_pause_sets_no_label(world: World) -> None:
    cluster, flags = world
    draining = ["LoadBalancing", "ResourceOptimization", "NodeMaintenance"]
    installed.configure(cluster, installed.config_text(enabledStrategies=draining))
    undo = dead_leader(cluster)
    try:
        dead = await evenkeel(*flags, "drain", "node-0")
    finally:
        undo()
    try:
        assert (await evenkeel(*flags, "pause", "--reason", "release day")).code == 0
        paused = await evenkeel(*flags, "drain", "node-0")
        shown = await evenkeel(*flags, "drain", "node-0", "--preview")
    finally:
        await evenkeel(*flags, "resume")
        installed.configure(cluster)
    assert (dead.code, paused.code) == (3, 3)
    assert "so nothing would carry it out" in dead.err
    assert "moves are paused by" in paused.err
    assert "nothing would happen now: moves are paused by" in shown.out
    assert "node-0 is to be emptied" in shown.out
    assert "is under maintenance" not in shown.out
    assert MAINTENANCE_LABEL not in cluster.store.get(NODES, "node-0")["metadata"]["labels"]


async def test_a_pause_is_shown_with_its_end(world: World) -> None:
    _, flags = world
    try:
        await evenkeel(*flags, "pause", "--for", "90m", "--reason", "release day")
        text = await evenkeel(*flags, "status")
    finally:
        await evenkeel(*flags, "resume")
    assert ": release day, for another 8" in text.out.replace("90m", "89m")
    assert "(evenkeel resume)" in text.out


async def test_an_unreadable_configuration_is_not_a_mode(world: World) -> None:
    cluster, flags = world
    cluster.store.delete(CONFIGMAPS, installed.LEADER, namespace=NAMESPACE)
    try:
        text = await evenkeel(*flags, "status")
        drained = await evenkeel(*flags, "drain", "node-0")
    finally:
        installed.configure(cluster)
    assert "mode        unknown: " in text.out
    assert "(judged by the defaults: there is no ConfigMap" in drained.err


async def test_a_crd_alone_is_no_installation(world: World) -> None:
    cluster, flags = world
    cluster.store.delete(LEASES, installed.LEADER, namespace=NAMESPACE)
    try:
        text = await evenkeel(*flags, "status")
    finally:
        installed.lead(cluster)
    assert "installed   partly: no rebalancer has led in namespace evenkeel" in text.out


async def test_the_label_is_taken_off(world: World) -> None:
    cluster, flags = world
    cluster.store.patch(NODES, "node-3", {"metadata": {"labels": {MAINTENANCE_LABEL: "true"}}})
    assert (await evenkeel(*flags, "drain", "node-3", "--cancel")).code == 0
    assert MAINTENANCE_LABEL not in cluster.store.get(NODES, "node-3")["metadata"]["labels"]


async def test_a_plan_without_leader_is_refused(world: World, tmp_path: Path) -> None:
    cluster, flags = world
    file = tmp_path / "plan.yaml"
    await planned(flags, file)
    undo = dead_leader(cluster)
    try:
        found = await evenkeel(*flags, "apply", str(file))
    finally:
        undo()
    assert found.code == 3
    assert "nothing would carry it out" in found.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mode": "observe"}, "only observes (mode)"),
        ({"paused": True}, "paused by the configuration"),
        (
            {"pools": [{"name": "p", "nodeSelector": "", "modes": dict.fromkeys(LOAD, "observe")}]},
            "only observes, by the modes of pool p (mode)",
        ),
        (
            {"schedule": [{"schedule": "0 0 29 2 *", "duration": "1m"}]},
            "it waits for the schedule of the configuration, which opens 20",
        ),
    ],
)
async def test_a_plan_is_refused_where_nothing_may_act(
    world: World, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    cluster, flags = world
    file = tmp_path / "plan.yaml"
    await planned(flags, file)
    undo = configured(**change)(cluster)
    try:
        found = await evenkeel(*flags, "apply", str(file))
    finally:
        undo()
    assert found.code == 3
    assert words in found.err
    assert cluster.store.list(MIGRATIONS) == []


async def test_a_plan_of_an_older_version_is_read_with_a_warning(
    world: World, tmp_path: Path
) -> None:
    """Its moves did not say which rule decided."""
    cluster, flags = world
    file = tmp_path / "plan.yaml"
    plan = await planned(flags, file)
    assert plan["schema"] == 2
    assert {move.pop("decidedBy") for move in plan["moves"]} == {"the configuration"}
    file.write_text(yaml.safe_dump(plan | {"schema": 1}))
    undo = configured(mode="observe")(cluster)
    try:
        found = await evenkeel(*flags, "apply", str(file))
    finally:
        undo()
    assert f"{file}: is of schema 1, and is read as schema 2" in found.err
    assert "only observes (mode)" in found.err


async def test_why_says_which_rule_decides(world: World) -> None:
    cluster, flags = world
    pools = [{"name": "tight", "nodeSelector": "kubernetes.io/hostname=node-0", "cpuThreshold": 9}]
    night = [{"schedule": "0 0 29 2 *", "duration": "1m"}]
    undo = configured(pools=pools, namespaces=[{"selector": "", "schedule": night}])(cluster)
    meta = next(
        pod["metadata"] for pod in cluster.pods() if pod["metadata"]["namespace"] == "default"
    )
    try:
        node = await evenkeel(*flags, "why", "node", "node-0")
        other = await evenkeel(*flags, "why", "node", "node-1")
        found = await evenkeel(*flags, "why", "pod", f"default/{meta['name']}")
    finally:
        undo()
    assert "pool tight (kubernetes.io/hostname=node-0) sets cpuThreshold" in node.out
    assert "9 % CPU, 80 % memory" in node.out
    assert "none matches: the configuration holds" in other.out
    assert "80 % CPU, 80 % memory" in other.out
    assert "namespaces[0] (all)" in found.out
    assert "act, by the configuration; it waits for the schedule of namespaces[0]" in found.out


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("uid", "0c8f1a3e-0000-4000-8000-000000000000", "the pod no longer exists (PodGone)"),
        ("source", "node-1", "the cluster has changed"),
        ("target", "node-9", "the cluster has changed"),
    ],
)
async def test_a_drifted_file_is_refused_and_says_why(
    world: World, tmp_path: Path, key: str, value: str, words: str
) -> None:
    cluster, flags = world
    file = tmp_path / "plan.yaml"
    plan = await planned(flags, file)
    plan["moves"][0] |= {key: value, "alternatives": []}
    file.write_text(yaml.safe_dump(plan))
    found = await evenkeel(*flags, "apply", str(file))
    assert found.code == 3, found
    assert words in found.err
    assert cluster.store.list(MIGRATIONS) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2", "is not YAML"),
        ("kind: Pod\n", "is not a plan"),
        ("apiVersion: evenkeel.io/v1alpha1\nkind: EvenkeelPlan\nschema: 99\n", "another version"),
        ("apiVersion: evenkeel.io/v1alpha1\nkind: EvenkeelPlan\nschema: 1\n", "missing required"),
    ],
)
async def test_a_file_that_is_no_plan_is_not_understood(
    world: World, tmp_path: Path, text: str, words: str
) -> None:
    _, flags = world
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    found = await evenkeel(*flags, "apply", str(file))
    assert found.code == 2
    assert words in found.err


@pytest.fixture
def migrations(world: World) -> Iterator[Callable[[], list[Json]]]:
    """List the Migrations; none is left for the other tests, which come in any order."""
    cluster, _ = world
    yield lambda: cluster.store.list(MIGRATIONS)
    for made in cluster.store.list(MIGRATIONS):
        cluster.store.delete(MIGRATIONS, made["metadata"]["name"])


async def test_a_reviewed_plan_becomes_migrations(
    world: World, tmp_path: Path, migrations: Callable[[], list[Json]]
) -> None:
    _, flags = world
    file = tmp_path / "plan.yaml"
    plan = await planned(flags, file)
    found = await evenkeel(*flags, "apply", str(file), "-o", "json")
    assert found.code == 0, found.err
    made = {m["metadata"]["name"]: m["spec"] for m in migrations()}
    now = [move for move in plan["moves"] if move["thisCycle"]]
    assert {uid: spec["target"] for uid, spec in made.items()} == {
        move["uid"]: move["target"] for move in now
    }
    assert found.json["created"] == len(now) > 0
    again = await evenkeel(*flags, "apply", str(file))
    assert again.code == 3
    assert "it is being moved already" in again.err
