# SPDX-License-Identifier: Apache-2.0
"""The scheduler as the client of extenders, against servers that follow a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from common.kube.resources import NODES, PODS
from simulator import build
from simulator.api import Json
from simulator.cluster import SimulatedCluster
from simulator.scheduler import ExtenderConfig, SchedulerConfig
from simulator.scheduler.config import ManagedResource
from tests.support.clock import FakeClock
from tests.support.stands.simulated_cluster import (
    cluster_of,
    condition,
    events,
    pass_time,
    ready,
    until,
)

Answer = Callable[[Json], Any]
Scripted = Answer | bytes | int | asyncio.Event
"""What is answered: computed, a body, a bare status, or nothing until an event."""
NODES_3 = ["node-0", "node-1", "node-2"]


class Script:
    """An extender whose answers a test decides, and which remembers the questions."""

    def __init__(self, **answers: Scripted) -> None:
        self.answers = answers
        self.calls: list[tuple[str, Json]] = []
        self.headers: list[Any] = []
        self.connections: set[Any] = set()
        self.called = asyncio.Event()
        self.url = ""

    def asked(self, verb: str) -> list[Json]:
        return [body for each, body in self.calls if each == verb]

    async def handle(self, request: web.Request) -> web.Response:
        verb = request.path.strip("/").rpartition("/")[2]
        body = json.loads(await request.read())
        self.calls.append((verb, body))
        self.called.set()
        self.headers.append(request.headers)
        self.connections.add(request.transport)
        answer = self.answers[verb]
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return web.Response()
        if isinstance(answer, int):
            return web.Response(status=answer)
        data = answer if isinstance(answer, bytes) else json.dumps(answer(body)).encode()
        return web.Response(body=data)


@asynccontextmanager
async def extender(**answers: Scripted) -> AsyncIterator[Script]:
    script = Script(**answers)
    app = web.Application()
    app.router.add_post("/{tail:.*}", script.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    script.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield script
    finally:
        await runner.cleanup()


def config(*scripts: Script, **more: Any) -> SchedulerConfig:
    """Return a configuration with these extenders, all alike."""
    given: dict[str, Any] = {"filter_verb": "filter", "node_cache_capable": True, **more}
    return SchedulerConfig(
        extenders=tuple(ExtenderConfig(url_prefix=script.url, **given) for script in scripts)
    )


def keep(*names: str) -> Answer:
    return lambda body: {"NodeNames": [name for name in body["NodeNames"] if name in names]}


def everything(body: Json) -> Json:
    return {"NodeNames": body["NodeNames"]}


def scores(**by_node: int) -> Answer:
    return lambda body: [
        {"Host": name, "Score": by_node.get(name.replace("-", "_"), 0)}
        for name in body["NodeNames"]
    ]


def node_of(cluster: SimulatedCluster, name: str = "web") -> str:
    return str(cluster.store.get(PODS, name, "default")["spec"].get("nodeName", ""))


async def placed(cluster: SimulatedCluster, name: str = "web") -> str:
    await until(cluster, lambda: node_of(cluster, name), f"{name} has a node")
    return node_of(cluster, name)


async def test_a_filter_decides_and_gets_names_only() -> None:
    async with (
        extender(filter=keep("node-1")) as script,
        cluster_of(3, build.pod("web"), scheduler=config(script)) as cluster,
    ):
        assert await placed(cluster) == "node-1"
    (body,) = script.asked("filter")
    assert sorted(body) == ["NodeNames", "Nodes", "Pod"]
    assert sorted(body["NodeNames"]) == NODES_3
    assert body["Nodes"] is None
    assert body["Pod"]["metadata"]["name"] == "web"
    assert "kind" not in body["Pod"]
    assert script.headers[0]["Content-Type"] == "application/json"


async def test_only_nodes_that_passed_everything_else_are_sent() -> None:
    nodes = [build.node("node-0", cpu="100m"), build.node("node-1"), build.node("node-2")]
    async with (
        extender(filter=everything) as script,
        cluster_of(nodes, build.pod("web", cpu="1"), scheduler=config(script)) as cluster,
    ):
        await placed(cluster)
    assert sorted(script.asked("filter")[0]["NodeNames"]) == ["node-1", "node-2"]


async def test_whole_nodes_are_sent_where_the_extender_has_no_cache() -> None:
    def keep_first(body: Json) -> Json:
        return {"Nodes": {"items": body["Nodes"]["items"][:1]}}

    async with (
        extender(filter=keep_first) as script,
        cluster_of(3, build.pod("web"), scheduler=config(script, node_cache_capable=False)) as c,
    ):
        node = await placed(c)
    body = script.asked("filter")[0]
    assert body["NodeNames"] is None
    assert node == body["Nodes"]["items"][0]["metadata"]["name"]
    assert "allocatable" in body["Nodes"]["items"][0]["status"]


async def test_one_point_of_an_extender_weighs_ten_of_the_scheduler() -> None:
    # The favourite is half full, which costs it more than ten points and less than a hundred.
    half = build.pod("half", node="node-2", cpu="4", memory="16Gi")
    verbs = {"prioritize_verb": "prioritize", "weight": 1}
    async with (
        extender(filter=everything, prioritize=scores(node_2=10)) as script,
        cluster_of(3, half, build.pod("web"), scheduler=config(script, **verbs)) as cluster,
    ):
        assert await placed(cluster) == "node-2"


async def test_a_heavy_weight_beats_all_spreading() -> None:
    verbs = {"prioritize_verb": "prioritize", "weight": 30}
    async with (
        extender(filter=everything, prioritize=scores(node_2=10)) as script,
        cluster_of(3, build.deployment("web", 6), scheduler=config(script, **verbs)) as cluster,
    ):
        await until(cluster, lambda: len(ready(cluster, "web")) == 6)
        assert {pod["spec"]["nodeName"] for pod in ready(cluster, "web")} == {"node-2"}


async def test_a_small_weight_is_outweighed_by_the_scheduler() -> None:
    verbs = {"prioritize_verb": "prioritize", "weight": 1}
    async with (
        extender(filter=everything, prioritize=scores(node_2=1)) as script,
        cluster_of(3, build.deployment("web", 3), scheduler=config(script, **verbs)) as cluster,
    ):
        await until(cluster, lambda: len(ready(cluster, "web")) == 3)
        assert len({pod["spec"]["nodeName"] for pod in ready(cluster, "web")}) == 3


async def test_one_node_left_needs_no_scores() -> None:
    verbs = {"prioritize_verb": "prioritize", "weight": 1}
    async with (
        extender(filter=keep("node-0"), prioritize=500) as script,
        cluster_of(3, build.pod("web"), scheduler=config(script, **verbs)) as cluster,
    ):
        await placed(cluster)
    assert not script.asked("prioritize")


@pytest.mark.parametrize("answer", [500, b"", b"{}", b'[{"Host":"node-0","Score":1.5}]'])
async def test_scores_that_fail_never_fail_the_pod(answer: int | bytes) -> None:
    verbs = {"prioritize_verb": "prioritize", "weight": 5}
    async with (
        extender(filter=everything, prioritize=answer) as script,
        cluster_of(3, build.pod("web"), scheduler=config(script, **verbs)) as cluster,
    ):
        assert await placed(cluster) in NODES_3


async def test_ties_go_to_nodes_that_the_extender_scored() -> None:
    verbs = {"prioritize_verb": "prioritize", "weight": 1}
    some: Answer = lambda body: [{"Host": "node-1", "Score": 0}]  # noqa: E731
    pods = [build.pod(f"web-{i}") for i in range(5)]
    async with (
        extender(filter=everything, prioritize=some) as script,
        cluster_of(3, scheduler=config(script, **verbs)) as cluster,
    ):
        for pod in pods:
            cluster.create([pod])
            name = pod["metadata"]["name"]
            assert await placed(cluster, name) == "node-1"
            # The next pod shall find all nodes alike again.
            cluster.store.delete(PODS, name, namespace="default")
            await until(cluster, lambda: not cluster.pods())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (500, "failed filter with extender at URL"),
        (201, "code 201"),
        (b"", "EOF"),
        (b'{"Error":"no idea"}', "no idea"),
        (b'{"NodeNames":["ghost"]}', "claims a filtered node"),
    ],
)
async def test_a_failing_filter_fails_the_pod_and_is_tried_again(
    answer: int | bytes, words: str
) -> None:
    async with (
        extender(filter=answer) as script,
        cluster_of(3, build.pod("web"), scheduler=config(script)) as cluster,
    ):
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        pod = cluster.store.get(PODS, "web", "default")
        told = condition(pod, "PodScheduled")
        assert told["reason"] == "SchedulerError"
        assert words in told["message"]
        script.answers["filter"] = everything
        await placed(cluster)


@pytest.mark.parametrize("answer", [500, b"", b'{"Error":"no idea"}'])
async def test_an_ignorable_filter_that_fails_is_skipped(answer: int | bytes) -> None:
    async with (
        extender(filter=answer) as script,
        cluster_of(3, build.pod("web"), scheduler=config(script, ignorable=True)) as cluster,
    ):
        assert await placed(cluster) in NODES_3


async def test_an_extender_that_is_down_is_an_error() -> None:
    async with extender(filter=everything) as script:
        chosen = config(script)
    async with cluster_of(3, build.pod("web"), scheduler=chosen) as cluster:
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        told = condition(cluster.store.get(PODS, "web", "default"), "PodScheduled")
    assert told["reason"] == "SchedulerError"


async def test_a_timeout_covers_the_whole_call() -> None:
    clock, release = FakeClock(), asyncio.Event()
    async with extender(filter=release) as script:
        chosen = config(script, http_timeout="200ms")
        async with cluster_of(3, build.pod("web"), scheduler=chosen, clock=clock) as cluster:
            await script.called.wait()
            await pass_time(clock, 1)
            told = condition(cluster.store.get(PODS, "web", "default"), "PodScheduled")
        release.set()
    assert told["reason"] == "SchedulerError"
    assert "deadline exceeded" in told["message"]


async def test_all_nodes_refused_parks_the_pod_until_anything_happens() -> None:
    refuse: Answer = lambda body: {  # noqa: E731
        "NodeNames": [],
        "FailedAndUnresolvableNodes": dict.fromkeys(body["NodeNames"], "under maintenance"),
    }
    async with (
        extender(filter=refuse) as script,
        cluster_of(3, build.pod("web"), scheduler=config(script)) as cluster,
    ):
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        told = condition(cluster.store.get(PODS, "web", "default"), "PodScheduled")
        assert told["message"].startswith("0/3 nodes are available: 3 under maintenance. ")
        assert told["message"].endswith("3 Preemption is not helpful for scheduling.")
        script.answers["filter"] = everything
        cluster.store.patch(NODES, "node-0", {"metadata": {"annotations": {"any": "thing"}}})
        await placed(cluster)


async def test_refused_without_reasons_says_nothing_about_nodes() -> None:
    async with (
        extender(filter=b"{}") as script,
        cluster_of(3, build.pod("web"), scheduler=config(script)) as cluster,
    ):
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        told = condition(cluster.store.get(PODS, "web", "default"), "PodScheduled")
    assert told["message"].startswith("0/3 nodes are available: no new claims")


async def test_extenders_filter_one_after_the_other_ignorable_ones_last() -> None:
    async with (
        extender(filter=keep("node-1", "node-2")) as first,
        extender(filter=keep("node-2")) as last,
    ):
        chosen = SchedulerConfig(
            extenders=(
                config(last, ignorable=True).extenders[0],
                config(first).extenders[0],
            )
        )
        async with cluster_of(3, build.pod("web"), scheduler=chosen) as cluster:
            assert await placed(cluster) == "node-2"
    assert sorted(first.asked("filter")[0]["NodeNames"]) == NODES_3
    assert sorted(last.asked("filter")[0]["NodeNames"]) == ["node-1", "node-2"]


async def test_an_extender_sees_only_pods_that_ask_for_what_it_manages() -> None:
    managed = (ManagedResource(name="example.com/gpu"),)
    nodes = [build.node(f"node-{i}", extended={"example.com/gpu": "4"}) for i in range(3)]
    gpu = build.pod("gpu")
    gpu["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    async with (
        extender(filter=everything) as script,
        cluster_of(
            nodes, gpu, build.pod("plain"), scheduler=config(script, managed_resources=managed)
        ) as cluster,
    ):
        await placed(cluster, "gpu")
        await placed(cluster, "plain")
    assert [body["Pod"]["metadata"]["name"] for body in script.asked("filter")] == ["gpu"]


async def test_a_promised_node_is_asked_about_alone() -> None:
    async with (
        extender(filter=everything) as script,
        cluster_of(3, scheduler=config(script)) as cluster,
    ):
        gated = build.pod("web", spec={"schedulingGates": [{"name": "example.com/wait"}]})
        cluster.create([gated])
        cluster.store.patch(
            PODS,
            "web",
            {"status": {"nominatedNodeName": "node-2"}},
            namespace="default",
            status=True,
        )
        cluster.store.patch(PODS, "web", {"spec": {"schedulingGates": None}}, namespace="default")
        assert await placed(cluster) == "node-2"
    assert [body["NodeNames"] for body in script.asked("filter")] == [["node-2"]]


async def test_calls_share_one_connection() -> None:
    async with (
        extender(filter=everything, prioritize=scores()) as script,
        cluster_of(
            3,
            build.deployment("web", 5),
            scheduler=config(script, prioritize_verb="prioritize", weight=1),
        ) as cluster,
    ):
        await until(cluster, lambda: len(ready(cluster, "web")) == 5)
    assert len(script.calls) == 10
    assert len(script.connections) == 1


def high() -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }


async def test_an_extender_can_veto_preemption() -> None:
    first = [build.node("node-0", cpu="1"), high()]
    async with (
        extender(filter=everything, preempt=lambda _: {}) as script,
        cluster_of(
            first, build.pod("lesser", cpu="900m"), scheduler=config(script, preempt_verb="preempt")
        ) as cluster,
    ):
        await until(cluster, lambda: ready(cluster, "lesser"))
        cluster.create([build.pod("vip", cpu="900m", spec={"priorityClassName": "high"})])
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        assert ready(cluster, "lesser")
        told = condition(cluster.store.get(PODS, "vip", "default"), "PodScheduled")
    (asked,) = script.asked("preempt")
    assert list(asked["NodeNameToMetaVictims"]) == ["node-0"]
    assert "no candidate node for preemption" in told["message"]


async def test_an_extender_that_agrees_lets_preemption_happen() -> None:
    first = [build.node("node-0", cpu="1"), high()]
    agree: Answer = lambda body: {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}  # noqa: E731
    async with (
        extender(filter=everything, preempt=agree) as script,
        cluster_of(
            first, build.pod("lesser", cpu="900m"), scheduler=config(script, preempt_verb="preempt")
        ) as cluster,
    ):
        await until(cluster, lambda: ready(cluster, "lesser"))
        cluster.create([build.pod("vip", cpu="900m", spec={"priorityClassName": "high"})])
        await until(cluster, lambda: ready(cluster, "vip"))
