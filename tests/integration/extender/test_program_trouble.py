# SPDX-License-Identifier: Apache-2.0
"""The whole extender when its surroundings fail: it answers all the same, and recovers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from common.kube.resources import PODS
from simulator import build
from simulator.api import DEFINITIONS, is_ready
from simulator.cluster import SimulatedCluster, write_kubeconfig
from simulator.faults import (
    AnyFault,
    DropWatches,
    FreezeWatches,
    ImagePulls,
    Latency,
    MetricsAbsent,
    MetricsFrozen,
    MetricsMissing,
    MetricsUnavailable,
    ServerError,
    Throttle,
)
from tests.support.stands.extender import (
    Extender,
    asked_by,
    eventually,
    extender,
    guided,
    leases,
    maintain,
    plan,
)
from tests.support.stands.extender_service import args, preemption_args
from tests.support.stands.simulated_cluster import cluster_of, pods_of, until
from tests.support.worlds.migrations import definition

NAMES = ("node-0", "node-1", "node-2")
NEUTRAL = dict.fromkeys(NAMES, 5)
HOT = build.pod("hot", node="node-0", cpu="100m", usage_cpu="7")


async def is_neutral(service: Extender) -> bool:
    """Return whether the answers of all three verbs are neutral."""
    kept = await service.kept(args(*NAMES))
    candidates = preemption_args({name: ["victim"] for name in NAMES})
    left = (await service.ask("preempt", candidates))["NodeNameToMetaVictims"]
    scores = await service.scores(args(*NAMES))
    return scores == NEUTRAL and kept == list(NAMES) and sorted(left) == list(NAMES)


async def hot_is_worst(service: Extender) -> bool:
    scores = await service.scores(args(*NAMES))
    return scores["node-0"] == 0 and min(scores["node-1"], scores["node-2"]) > 5


@contextmanager
def silent_port() -> Iterator[int]:
    """Reserve a port on which no server listens yet."""
    with socket.socket() as reserved:
        # Both sides set it, so a server may bind the port while no other one listens on it.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


async def test_without_an_api_server_the_answers_are_neutral(tmp_path: Path) -> None:
    with silent_port() as port:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        async with extender(kubeconfig) as service:
            assert await is_neutral(service)
            answer = await service.get("/readyz")
            assert answer.status_code == 503
            assert "[-]cluster failed: waiting for nodes, pods, migrations" in answer.text
            assert "[-]board failed: scores not computed yet" in answer.text
            assert (await service.get("/livez")).is_success
            for verb in ("filter", "prioritize", "preempt"):
                assert await service.total("neutral_answers_total", verb=verb, cause="cold") == 1
            async with cluster_of(3, definition(), HOT, port=port):
                await eventually(service.is_ready, "it is ready once the API is there")
                await eventually(partial(hot_is_worst, service), "its scores mean something")


@pytest.mark.parametrize(
    "fault",
    [ServerError(status=503), ServerError(status=403), Throttle()],
    ids=["unavailable", "forbidden", "throttled"],
)
async def test_an_api_server_that_refuses_delays_the_start_only(
    fault: AnyFault, tmp_path: Path
) -> None:
    async with cluster_of(3, definition(), HOT) as cluster:
        number = cluster.faults.inject(fault)
        async with extender(cluster.write_kubeconfig(tmp_path / "kubeconfig")) as service:
            assert await is_neutral(service)
            assert not await service.is_ready()
            assert leases(cluster) == []
            cluster.faults.withdraw(number)
            await eventually(service.is_ready, "it is ready after the fault")
            await eventually(partial(hot_is_worst, service), "its scores mean something")


async def test_without_the_crd_load_and_maintenance_count_and_the_installation_is_explained(
    tmp_path: Path,
) -> None:
    async with cluster_of(3, HOT) as cluster:
        maintain(cluster, "node-1", on=True)
        with capture_logs() as logs:
            async with guided(cluster, tmp_path) as service:
                await eventually(partial(hot_is_worst, service), "scores are given")
                assert await service.kept(args(*NAMES)) == ["node-0", "node-2"]
                answer = await service.get("/readyz")
                assert answer.status_code == 200
                assert answer.text == (
                    "ok\n[!]migrations: moved pods are not directed to their targets, "
                    "everything else works: "
                    "the Migration CRD is not installed: "
                    "run kubectl apply --server-side -k deploy/crds\n"
                )
                assert await service.total("crd_missing", kind="Migration") == 1
                assert await service.total("cache_staleness_seconds", kind="Migration") < 60
                assert leases(cluster) == []
        installs = [line["install"] for line in logs if line["event"] == "CRD not installed"]
        assert installs == ["kubectl apply --server-side -k deploy/crds"]


async def test_a_crd_that_comes_goes_and_comes_again_is_taken_up_without_a_restart(
    tmp_path: Path,
) -> None:
    async with cluster_of(3) as cluster, guided(cluster, tmp_path) as service:
        assert "CRD is not installed" in (await service.get("/readyz")).text
        for number in range(2):
            cluster.create([definition()])
            await eventually(partial(guides_a_move, cluster, service, f"web-{number}"))
            await eventually(lambda: leases(cluster), "it has a Lease")
            assert (await service.get("/readyz")).text == "ok\n"
            assert await service.total("crd_missing", kind="Migration") == 0
            cluster.store.delete(DEFINITIONS, "migrations.evenkeel.io")
            await eventually(partial(misses_the_crd, service), "it notices")
            assert await service.is_ready()
            assert await service.intents() == []


async def misses_the_crd(service: Extender) -> bool:
    return await service.total("crd_missing", kind="Migration") == 1


async def guides_a_move(cluster: SimulatedCluster, service: Extender, app: str) -> bool:
    """Plan a move of a new pod, and wait until the extender knows of it."""
    cluster.create([build.deployment(app, 1)])
    await until(cluster, lambda: [p for p in pods_of(cluster, app) if "nodeName" in p["spec"]])
    [pod] = pods_of(cluster, app)
    plan(cluster, pod, next(n for n in NAMES if n != pod["spec"]["nodeName"]))
    await eventually(service.intents, "the move is known")
    return True


@pytest.mark.parametrize(("status", "error"), [(403, "Forbidden"), (500, "ServerError")])
async def test_migrations_that_cannot_be_read_are_no_missing_crd(
    status: int, error: str, tmp_path: Path
) -> None:
    async with cluster_of(3, definition(), HOT) as cluster:
        fault = ServerError(status=status, resources=("migrations",))
        number = cluster.faults.inject(fault)
        async with extender(cluster.write_kubeconfig(tmp_path / "kubeconfig")) as service:
            await eventually(partial(hot_is_worst, service), "scores are given")
            answer = await service.get("/readyz")
            assert answer.status_code == 503
            assert f"[-]cluster failed: waiting for migrations ({error}" in answer.text
            assert "[+]board ok" in answer.text
            assert "CRD" not in answer.text
            assert await service.total("crd_missing", kind="Migration") == 0
            cluster.faults.withdraw(number)
            await eventually(service.is_ready, "it is ready once Migrations are served")
            await eventually(lambda: leases(cluster), "it has a Lease")


async def test_what_keeps_it_alive_is_reported(tmp_path: Path) -> None:
    async with cluster_of(3, definition()) as cluster, guided(cluster, tmp_path) as service:
        answer = await service.get("/livez?verbose")
        assert (answer.status_code, answer.text) == (200, "[+]board ok\nlivez check passed\n")


@pytest.mark.parametrize("fault", [MetricsUnavailable(), MetricsMissing(), MetricsFrozen()])
async def test_without_fresh_metrics_all_scores_are_equal(fault: AnyFault, tmp_path: Path) -> None:
    async with (
        cluster_of(3, definition(), HOT) as cluster,
        guided(cluster, tmp_path, metricExpiry="2s") as service,
    ):
        await eventually(partial(hot_is_worst, service), "the hot node is known")
        number = cluster.faults.inject(fault)

        async def equal() -> bool:
            return await service.scores(args(*NAMES)) == NEUTRAL

        await eventually(equal, "the samples have expired")
        assert await service.is_ready()
        assert await service.total("neutral_answers_total", verb="prioritize", cause="resting") > 0
        maintain(cluster, "node-2", on=True)

        async def refused() -> bool:
            return await service.kept(args(*NAMES)) == ["node-0", "node-1"]

        await eventually(refused, "maintenance is enforced all the same")
        maintain(cluster, "node-2", on=False)
        cluster.faults.withdraw(number)
        await eventually(partial(hot_is_worst, service), "the hot node is known again")


@pytest.mark.parametrize("fault", [MetricsAbsent(), MetricsUnavailable()], ids=["404", "503"])
async def test_where_there_are_no_metrics_requests_do_not_score_until_there_are_some(
    fault: AnyFault, tmp_path: Path
) -> None:
    big = build.pod("big", node="node-1", cpu="7", usage_cpu="100m")
    async with cluster_of(3, definition(), HOT, big) as cluster:
        cluster.faults.inject(fault)
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with extender(kubeconfig, usageSource="auto", overloaded="filter") as service:

            async def refused() -> bool:
                return await service.kept(args(*NAMES)) == ["node-0", "node-1"]

            maintain(cluster, "node-2", on=True)
            await eventually(refused, "maintenance is enforced")
            maintain(cluster, "node-2", on=False)
            assert await service.scores(args(*NAMES)) == NEUTRAL
            absent = isinstance(fault, MetricsAbsent)
            assert await service.total("usage_missing") == float(absent)
            cluster.faults.clear()
            await eventually(partial(hot_is_worst, service), "metrics are taken up")
            assert await service.total("usage_missing") == 0


async def test_requests_score_where_the_configuration_says_so(tmp_path: Path) -> None:
    full = build.pod("full", node="node-0", cpu="7500m", usage_cpu="100m")
    async with cluster_of(3, definition(), full, metrics=False) as cluster:
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with extender(kubeconfig, usageSource="requests") as service:
            await eventually(partial(hot_is_worst, service), "requests score")


async def test_a_node_on_which_pods_do_not_start_is_not_refused(tmp_path: Path) -> None:
    pods = [
        build.pod("stuck", node="node-1"),
        build.pod("stuck", namespace="blog", node="node-1"),
        build.pod("fine", node="node-2"),
    ]
    async with cluster_of(3, definition(), build.namespace("blog")) as cluster:
        cluster.faults.inject(ImagePulls(node="node-1"))
        cluster.create(pods)
        await until(cluster, lambda: is_ready(cluster.store.get(PODS, "fine", "default")))
        async with guided(cluster, tmp_path, overloaded="filter") as service:
            assert await service.kept(args(*NAMES)) == list(NAMES)


class Trouble(NamedTuple):
    """Something that happens to the watches."""

    faults: tuple[AnyFault, ...]
    felt: str
    """The counter that shows when the program has noticed."""
    forgotten: bool = False
    """Whether the server has no history when the watches are taken up again: 410."""


_NO_READING = ServerError(verbs=("list", "watch"), status=500)
_WATCHES = "reflector_watches_total"
_ERRORS = "reflector_errors_total"
TROUBLES = {
    "dropped": Trouble((DropWatches(),), _WATCHES),
    "slow": Trouble((Latency(seconds=0.3), DropWatches()), _WATCHES),
    # A silence is not reported; meanwhile usage is read as always.
    "frozen": Trouble((FreezeWatches(),), "usage_samples_total"),
    "refused": Trouble((_NO_READING, DropWatches()), _ERRORS),
    "gone": Trouble((_NO_READING, DropWatches()), _ERRORS, forgotten=True),
}


@pytest.mark.parametrize("name", TROUBLES)
async def test_whatever_happens_to_watches_it_is_right_afterwards(
    name: str, tmp_path: Path
) -> None:
    trouble = TROUBLES[name]
    async with cluster_of(3, definition()) as cluster, guided(cluster, tmp_path) as service:
        cluster.create([build.deployment("web", 1)])
        await until(cluster, lambda: _node_of(cluster, "web"), "the pod has a node")
        source = _node_of(cluster, "web")
        target, other = (each for each in NAMES if each != source)
        before = await service.total(trouble.felt)
        for fault in trouble.faults:
            cluster.faults.inject(fault)
        maintain(cluster, other, on=True)
        [victim] = pods_of(cluster, "web")
        plan(cluster, victim, target)
        cluster.create([build.node("late")])

        async def noticed() -> bool:
            return await service.total(trouble.felt) >= before + 3

        async def right() -> bool:
            row, late = await service.node(other), await service.node("late")
            return bool(row.get("maintenance") and late and await service.intents())

        await eventually(noticed, "it noticed")
        if trouble.forgotten:
            cluster.store.storage.compact()
        cluster.faults.clear()
        await eventually(right, "it knows what happened meanwhile")
        cluster.store.evict(victim["metadata"]["name"], "default")
        await until(cluster, lambda: _node_of(cluster, "web") == target, "it went as planned")
        assert other not in await service.kept(args(*NAMES))
        gone = await service.total(_ERRORS, cause="Gone")
        assert (gone > 0) is trouble.forgotten


def _node_of(cluster: SimulatedCluster, app: str) -> str:
    return next((pod["spec"].get("nodeName", "") for pod in pods_of(cluster, app)), "")


async def test_an_api_server_that_goes_away_leaves_what_was_known(tmp_path: Path) -> None:
    async with cluster_of(3, definition(), HOT) as cluster:
        maintain(cluster, "node-1", on=True)
        async with extender(cluster.write_kubeconfig(tmp_path / "kubeconfig")) as service:
            await eventually(service.is_ready, "it is ready")
            await eventually(partial(hot_is_worst, service), "the hot node is known")
            await cluster.server.stop()
            assert await hot_is_worst(service)
            assert await service.kept(args(*NAMES)) == ["node-0", "node-2"]
            assert await service.is_ready()
            await cluster.server.start()
            maintain(cluster, "node-1", on=False)

            async def freed() -> bool:
                return await service.kept(args(*NAMES)) == list(NAMES)

            await eventually(freed, "it receives events again")


async def test_a_cluster_without_extender_schedules_all_the_same(tmp_path: Path) -> None:
    async with cluster_of(3, definition()) as cluster:
        async with extender(cluster.write_kubeconfig(tmp_path / "kubeconfig")) as service:
            url = service.url
        async with asked_by(cluster, url, ignorable=True):
            cluster.create([build.deployment("web", 3)])
            await until(cluster, lambda: len(_placed(cluster)) == 3, "all pods have nodes")


def _placed(cluster: SimulatedCluster) -> list[str]:
    return [name for pod in pods_of(cluster, "web") if (name := pod["spec"].get("nodeName"))]
