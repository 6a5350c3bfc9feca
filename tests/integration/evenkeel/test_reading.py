# SPDX-License-Identifier: Apache-2.0
"""The reading commands on a simulated cluster that Evenkeel is not installed in."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from common.api.contract import MAINTENANCE_LABEL, MAINTENANCE_PROGRESS, PAUSE
from common.kube.resources import CONFIGMAPS, DEPLOYMENTS, LEASES, NODES, PODS
from simulator import build
from simulator.cluster import SimulatedCluster
from simulator.faults import MetricsMissing, ServerError
from tests.support.stands import installed
from tests.support.stands.command import Answer, at, evenkeel, evenkeel_process
from tests.support.stands.extender import eventually
from tests.support.stands.simulated_cluster import cluster_of, ready, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPLICAS = 6
LONG = "a-very-long-name-of-a-workload-as-generators-make-them-x"


World = tuple[SimulatedCluster, tuple[str, str]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Run a cluster for all tests that only read."""
    async with measured_cluster() as cluster:
        yield cluster, at(cluster, tmp_path_factory.mktemp("world"))


@pytest_asyncio.fixture(loop_scope="module")
async def own(tmp_path: Path) -> AsyncIterator[World]:
    """Run a cluster for one test that changes it."""
    async with measured_cluster() as cluster:
        yield cluster, at(cluster, tmp_path)


@asynccontextmanager
async def measured_cluster() -> AsyncIterator[SimulatedCluster]:
    apps = build.deployment("web", REPLICAS, cpu="500m"), build.deployment(LONG, 2, cpu="100m")
    async with cluster_of(3, *apps) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == REPLICAS)
        await until(cluster, lambda: len(ready(cluster, LONG)) == 2)
        served = cluster.metrics.node_metrics
        await eventually(lambda: len(list(served())) == 3, "all nodes are measured")
        yield cluster


def a_pod(cluster: SimulatedCluster, app: str = "web") -> str:
    return f"default/{ready(cluster, app)[0]['metadata']['name']}"


async def test_status_works_before_anything_is_installed(world: World) -> None:
    _, flags = world
    text = await evenkeel(*flags, "status")
    assert text.code == 0, text.err
    assert "installed   no" in text.out
    # What is read from Migrations is unknown without them, and not zero.
    for line in ("breaker     unknown", "moves       unknown", "last plan   unknown"):
        assert line in text.out.splitlines()
    shown = (await evenkeel(*flags, "status", "-o", "json")).json
    assert (shown["kind"], shown["installed"], shown["nodes"]) == ("Status", False, 3)
    assert shown["openMoves"] == 0
    assert any("defaults" in note for note in shown["notes"])


async def test_nodes_show_their_load_and_an_unknown_one_is_never_zero(own: World) -> None:
    cluster, flags = own
    cluster.faults.inject(MetricsMissing(node="node-1"))
    found = (await evenkeel(*flags, "nodes", "-o", "yaml")).yaml
    by_name = {node["name"]: node for node in found["nodes"]}
    assert by_name["node-1"]["cpu"] is None
    assert by_name["node-1"]["note"] == "it was never measured"
    assert by_name["node-0"]["cpu"] > 0
    text = await evenkeel(*flags, "nodes")
    (line,) = [line for line in text.out.splitlines() if " node-1 " in line]
    assert "unknown" in line
    assert " 0 %" not in line


async def test_why_answers_about_pods_nodes_and_workloads(world: World) -> None:
    cluster, flags = world
    name = a_pod(cluster)
    pod = (await evenkeel(*flags, "why", "pod", name, "-o", "json")).json
    assert (pod["kind"], pod["name"]) == ("pod", name)
    assert len(pod["gates"]) > 40
    assert all(gate["words"] for gate in pod["gates"])
    # It is younger than minPodAge.
    assert "TooYoung" in [gate["name"] for gate in pod["gates"] if not gate["passed"]]
    assert any("wait until it is old enough" in change for change in pod["changes"])
    node = await evenkeel(*flags, "why", "node", "node-0")
    assert "node-0 uses" in node.out
    workload = await evenkeel(*flags, "why", "workload", "web")
    assert "Deployment" in workload.out
    assert name.partition("/")[2] in workload.out


async def test_a_name_that_does_not_exist_is_answered_with_close_ones(world: World) -> None:
    _, flags = world
    missing = await evenkeel(*flags, "why", "node", "node-9")
    assert missing.code == 1
    assert missing.err == (
        "evenkeel: there is no node node-9; did you mean node-2, node-1, node-0?\n"
    )


async def test_a_plan_says_that_nothing_is_enabled(world: World, tmp_path: Path) -> None:
    _, flags = world
    config = tmp_path / "none.yaml"
    config.write_text(
        "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\nenabledStrategies: []\n"
    )
    found = await evenkeel(*flags, "--config", str(config), "plan")
    assert "nothing to do" not in found.out
    assert "No strategy is enabled (enabledStrategies)" in found.out


async def test_names_stay_whole_in_pipes(world: World) -> None:
    cluster, flags = world
    name = a_pod(cluster, LONG)
    found = await evenkeel(*flags, "why", "pod", name)
    assert f"pod {name}" in found.out
    assert f"Deployment default/{LONG}" in found.out


async def test_a_missing_permission_is_named_at_once(own: World) -> None:
    cluster, flags = own
    fault = ServerError(status=403, verbs=("list",), resources=("pods", "nodes"))
    cluster.faults.inject(fault)
    found = await evenkeel(*flags, "status")
    assert found.code == 1
    assert found.err.startswith("evenkeel: missing permission: list nodes, list pods; ClusterRole")


async def test_the_installed_configuration_is_what_it_judges_by(own: World) -> None:
    cluster, flags = own
    cluster.store.create(kind("namespaces"), build.namespace("evenkeel"))
    text = "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\nmode: act\n"
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "evenkeel-rebalancer", "namespace": "evenkeel"},
        "data": {"rebalancer.yaml": text},
    }
    cluster.store.create(CONFIGMAPS, made, namespace="evenkeel")
    shown = (await evenkeel(*flags, "status", "-o", "json")).json
    assert (shown["mode"], shown["acts"]) == ("act", True)


def kind(plural: str) -> Any:
    from common.kube import resources

    return getattr(resources, plural.upper())


HOSTILE = "\x1b[2J\u202eevil\x07<b>" + "w" * 200
NAMED = "x" * 63
"""API servers refuse odd names; they may be long."""
DANGEROUS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def hostile(cluster: SimulatedCluster) -> None:
    """Write what terminals obey wherever a tenant or another program can write text."""
    meta = {"labels": {MAINTENANCE_LABEL: "true"}, "annotations": {MAINTENANCE_PROGRESS: HOSTILE}}
    cluster.store.patch(NODES, "node-2", {"metadata": meta})
    cluster.store.create(DEPLOYMENTS, build.deployment(NAMED, 1, annotations={"x": HOSTILE}))
    installed.install(cluster)
    lease = {"spec": {"holderIdentity": HOSTILE}}
    cluster.store.patch(LEASES, installed.LEADER, lease, namespace=installed.NAMESPACE)
    pause = {"by": HOSTILE, "why": HOSTILE, "until": HOSTILE}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PAUSE}, "data": pause}
    made["metadata"] = {"name": PAUSE, "namespace": installed.NAMESPACE}
    cluster.store.create(CONFIGMAPS, made)
    installed.configure(cluster, installed.config_text(**{HOSTILE: HOSTILE}))


async def test_hostile_texts_and_long_names_are_shown_as_text(own: World) -> None:
    cluster, flags = own
    hostile(cluster)
    await until(cluster, lambda: len(ready(cluster, NAMED)) == 1)
    shown = ""
    for command in (
        ("nodes", "-o", "wide"),
        ("status",),
        ("plan", "-o", "wide"),
        ("why", "node", "node-2"),
        ("why", "pod", a_pod(cluster, NAMED)),
        ("why", "workload", f"default/{NAMED}"),
        ("drain", "node-0", "--preview"),
        ("doctor",),
    ):
        found = await evenkeel(*flags, *command)
        assert found.code in (0, 3), found.err
        assert not DANGEROUS.search(found.out), command
        assert not DANGEROUS.search(found.err), command
        shown += found.out
    assert "\\x1b[2J\\u202eevil" in shown, "it is there, escaped"


async def test_hostile_arguments_are_shown_as_text(world: World) -> None:
    _, flags = world
    found = await evenkeel(*flags, "why", "pod", "\x1b[2J\u202e/evil")
    assert found.code == 1
    assert "\x1b" not in found.err
    assert "\u202e" not in found.err


async def test_pause_and_resume_are_seen_by_status(own: World) -> None:
    cluster, flags = own
    cluster.store.create(kind("namespaces"), build.namespace("evenkeel"))
    paused = await evenkeel(*flags, "pause", "--for", "1h", "--reason", "release day")
    assert paused.code == 0, paused.err
    assert "Moves are paused by" in paused.out
    shown = (await evenkeel(*flags, "status", "-o", "json")).json
    assert shown["pause"]["why"] == "release day"
    assert shown["pause"]["untilS"] > 0
    again = await evenkeel(*flags, "pause")
    assert "evenkeel resume lets it go on" in again.out
    assert "Resumed" in (await evenkeel(*flags, "resume")).out
    assert (await evenkeel(*flags, "resume")).out == "It was not paused.\n"
    assert (await evenkeel(*flags, "status", "-o", "json")).json["pause"] is None


async def test_history_says_how_far_back_it_reaches(world: World) -> None:
    _, flags = world
    found = (await evenkeel(*flags, "history", "-o", "json")).json
    assert found["rows"] == []
    assert "CRD is not installed" in found["reaches"]


@pytest.mark.parametrize("arguments", [("nosuch",), ("why", "pod"), ("nodes", "-o", "xml")])
async def test_a_command_line_that_is_not_understood(arguments: tuple[str, ...]) -> None:
    found = await evenkeel(*arguments)
    assert found.code == 2
    assert "Error" in found.err


async def test_the_program_runs_as_a_process(world: World) -> None:
    _, flags = world
    found = await evenkeel_process(*flags, "nodes", "-o", "json")
    assert found.code == 0, found.err
    assert len(found.json["nodes"]) == 3
    assert found.err == ""


async def test_an_unreachable_cluster_is_one_line(tmp_path: Path) -> None:
    missing: Answer = await evenkeel("--kubeconfig", str(tmp_path / "none"), "status")
    assert missing.code == 1
    assert missing.err.count("\n") == 1
    assert PODS.plural not in missing.err


async def test_names_that_may_have_been_meant_are_close_ones(world: World) -> None:
    _, flags = world
    for asked in (("why", "node", "node1"), ("drain", "node1", "--preview")):
        found = await evenkeel(*flags, *asked)
        assert found.err.startswith("evenkeel: there is no node node1; did you mean node-1")
    far = await evenkeel(*flags, "why", "workload", "default/nope")
    assert far.err == "evenkeel: there is no workload default/nope\n"


async def test_a_length_of_time_is_explained_once(world: World) -> None:
    _, flags = world
    wrong = await evenkeel(*flags, "history", "--since", "2x")
    assert wrong.code == 2
    assert wrong.err.count("write 30s, 5m or 1h") == 1


async def test_pausing_without_an_installation_says_what_is_missing(world: World) -> None:
    _, flags = world
    answer = await evenkeel(*flags, "pause")
    assert (answer.code, answer.err) == (
        1,
        "evenkeel: there is no namespace evenkeel; -n names the one of Evenkeel\n",
    )


async def test_a_node_says_what_each_reason_keeps_it_from(own: World) -> None:
    cluster, flags = own
    cluster.store.update(NODES, _cordoned(cluster, "node-2"))
    shown = (await evenkeel(*flags, "why", "node", "node-2", "-o", "json")).json
    refused = {gate["name"]: gate["words"] for gate in shown["gates"] if not gate["passed"]}
    assert refused["Cordoned"].endswith(", so it takes no pods for load")
    assert refused["TooYoung"].endswith("so it is not compared with other nodes (LoadBalancing)")


def _cordoned(cluster: SimulatedCluster, name: str) -> Any:  # Any: an API object
    node = cluster.store.get(NODES, name)
    return {**node, "spec": {**node["spec"], "unschedulable": True}}
