# SPDX-License-Identifier: Apache-2.0
"""Prometheus' API over a real socket, and everything that can go wrong with it."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import msgspec
import pytest
from structlog.testing import capture_logs

from common.cluster.records import NodeName, NodeRecord
from common.cluster.resources import Resources
from common.config import Duration, FurtherResource, Prometheus, Queries, SourceKind
from common.kube.client import KubeClient
from common.usage import Sample, UsageError
from common.usage.auto import open_source
from common.usage.prometheus import PrometheusSource, offers
from common.usage.source import FurtherSample
from tests.support.certificates import Authority, server_context
from tests.support.clock import FakeClock
from tests.support.stands.scripted_api import (
    Exchange,
    Request,
    ScriptedApi,
    Step,
    answer,
    no_answer,
)

AT_S = 1_800_000_000.0
NODES = (NodeRecord(name=NodeName("n1"), uid="1", addresses=("10.0.0.1",)),)


SCALAR = {"status": "success", "data": {"resultType": "scalar", "result": [AT_S, "x"]}}


def now() -> Step:
    return answer(200, SCALAR)


def packed(body: bytes, encoding: str = "gzip") -> Step:
    return answer(200, body, headers={"Content-Encoding": encoding})


def bomb(mebibytes: int) -> Step:
    """Return a small answer that unpacks to a large one."""
    return packed(gzip.compress(b" " * (mebibytes << 20), 1))


def vector(*series: tuple[Mapping[str, str], str]) -> Step:
    result = [{"metric": labels, "value": [AT_S, value]} for labels, value in series]
    return answer(200, {"status": "success", "data": {"resultType": "vector", "result": result}})


def of_node(value: str) -> Step:
    return vector(({"node": "n1"}, value))


def of_pod(value: str) -> Step:
    return vector(({"namespace": "shop", "pod": "web-1"}, value))


def whole_round(
    node: tuple[str, str, str] = ("1.5", "2048", "1799999990"),
    pod: tuple[str, str, str] = ("0.25", "1024", "1799999995.5"),
) -> list[Step]:
    return [now(), *map(of_node, node), *map(of_pod, pod)]


async def sampled(*steps: Step, **settings: Any) -> tuple[Sample, list[Request]]:
    async with ScriptedApi(*steps, *[answer(500, b"the script is over")] * 9) as api:
        return await sampled_from(api, **settings), api.requests


async def sampled_from(api: ScriptedApi, **settings: Any) -> Sample:
    made = Prometheus(url=api.url, **settings)
    async with PrometheusSource(made, nodes=lambda: NODES, clock=FakeClock()) as source:
        return await source.sample()


def form(request: Request) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(request.body.decode()).items()}


async def test_a_figure_ends_when_its_series_was_last_scraped() -> None:
    sample, _ = await sampled(*whole_round(), window=Duration(90.0))

    node, pod = sample.nodes[NodeName("n1")], sample.pods["shop/web-1"]
    assert (node.cpu_milli, node.mem_bytes, node.end_s) == (1500.0, 2048.0, 1_799_999_990.0)
    assert (pod.cpu_milli, pod.mem_bytes, pod.end_s) == (250.0, 1024.0, 1_799_999_995.5)
    assert node.window_s == pod.window_s == 90.0


async def test_reading_has_a_checkpoint_at_every_series() -> None:
    pauses: list[str] = []
    async with (
        ScriptedApi(*whole_round()) as api,
        open_source(
            SourceKind.PROMETHEUS,
            cast("KubeClient", None),
            nodes=lambda: NODES,
            prometheus=Prometheus(url=api.url),
            clock=FakeClock(),
            checkpoint=lambda: pauses.append("one"),
        ) as source,
    ):
        await source.sample()
    assert len(pauses) == 6


async def test_all_queries_are_evaluated_at_the_same_moment_of_the_servers_clock() -> None:
    _, requests = await sampled(*whole_round(), window=Duration(90.0))

    assert {request.path for request in requests} == {"/api/v1/query"}
    assert form(requests[0]) == {"query": "time()"}
    assert {form(request)["time"] for request in requests[1:]} == {"1800000000.000"}
    assert "[90000ms]" in form(requests[1])["query"]
    assert "by (node, instance)" in form(requests[1])["query"]


async def test_a_server_that_says_the_time_as_a_vector_is_understood() -> None:
    steps = whole_round()
    sample, _ = await sampled(vector(({}, "1800000000")), *steps[1:])

    assert set(sample.nodes) == {"n1"}


async def test_queries_of_ones_own_are_asked_and_taken_as_fresh() -> None:
    queries = Queries(node_cpu="my_cpu[$window] by ($node)", pod_cpu="my_pods")
    of_host = vector(({"host": "n1"}, "1"))
    steps = [now(), of_host, of_host, of_pod("1"), of_pod("2")]
    sample, requests = await sampled(
        *steps, queries=queries, window=Duration(60.0), node_label="host"
    )

    assert form(requests[1])["query"] == "my_cpu[60000ms] by (host)"
    assert form(requests[3])["query"] == "my_pods"
    assert len(requests) == len(steps)
    assert sample.pods["shop/web-1"].end_s == AT_S


async def test_queries_of_ones_own_may_say_their_time() -> None:
    queries = Queries(pod_cpu="my_pods", pod_time="my_time")
    sample, requests = await sampled(*whole_round(), queries=queries)

    assert form(requests[-1])["query"] == "my_time"
    assert sample.pods["shop/web-1"].end_s == 1_799_999_995.5


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
@pytest.mark.parametrize("figure", range(3))
async def test_what_is_no_number_was_not_measured(value: str, figure: int) -> None:
    both = [
        ({"namespace": "shop", "pod": "web-1"}, "1"),
        ({"namespace": "shop", "pod": "web-2"}, "1"),
    ]
    answers = [list(both) for _ in range(3)]
    answers[figure][0] = (both[0][0], value)
    sample, _ = await sampled(*whole_round()[:4], *(vector(*series) for series in answers))

    assert set(sample.pods) == {"shop/web-2"}


@pytest.mark.parametrize(
    "labels",
    [{"pod": "web-1"}, {"namespace": "shop"}, {"namespace": "", "pod": "web-1"}, {}],
    ids=str,
)
async def test_series_without_the_labels_that_name_a_pod_are_dropped(
    labels: Mapping[str, str],
) -> None:
    named = ({"namespace": "shop", "pod": "web-2"}, "1")
    pods = [vector((labels, "1"), named) for _ in range(3)]
    sample, _ = await sampled(*whole_round()[:4], *pods)

    assert set(sample.pods) == {"shop/web-2"}


async def test_machines_outside_the_cluster_are_dropped() -> None:
    nodes = [vector(({"instance": "192.168.0.9:9100"}, "9"), ({"node": "n1"}, "1"))] * 3
    sample, _ = await sampled(now(), *nodes, *whole_round()[4:])

    assert set(sample.nodes) == {"n1"}


@pytest.mark.parametrize("values", [("1", "2"), ("2", "1")], ids=str)
async def test_a_node_that_is_seen_twice_counts_once(values: tuple[str, str]) -> None:
    nodes = [vector(({"node": "n1"}, values[0]), ({"instance": "10.0.0.1:9100"}, values[1]))] * 3
    sample, _ = await sampled(now(), *nodes, *whole_round()[4:])

    assert sample.nodes[NodeName("n1")].cpu_milli == 2000.0


@pytest.mark.parametrize("missing", [1, 2], ids=["memory", "time"])
async def test_a_figure_without_its_other_half_was_not_measured(missing: int) -> None:
    nodes = [of_node("1"), of_node("1"), of_node("1")]
    nodes[missing] = vector()
    sample, _ = await sampled(now(), *nodes, *whole_round()[4:])

    assert sample.nodes == {}


FAILED = {"status": "error", "errorType": "bad_data", "error": "parse error at char 7"}


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        pytest.param([answer(500, b"oops")], "HTTP 500 for time", id="500"),
        pytest.param([answer(302, b"")], "HTTP 302 for time", id="a log-in page"),
        pytest.param([answer(401, b"<html>")], "HTTP 401 for time", id="401"),
        pytest.param([answer(400, FAILED)], "parse error at char 7", id="400 with words"),
        pytest.param([answer(200, FAILED)], "parse error at char 7", id="200 with an error"),
        pytest.param([answer(200, {"status": "error"})], "error in time", id="an error, no words"),
        pytest.param([answer(200, {"status": "success"})], "success in time", id="no data"),
        pytest.param([answer(200, b'{"status": "succ')], "makes no sense", id="cut off"),
        pytest.param([answer(200, b"hello")], "makes no sense", id="not JSON"),
        pytest.param([answer(200, [1, 2])], "makes no sense", id="another shape"),
        pytest.param([vector()], r"time\(\) makes no sense", id="no time"),
        pytest.param([now(), now()], "it is a scalar, not a vector", id="a scalar"),
        pytest.param([now(), of_node("much")], "no node of the cluster is in", id="not a number"),
        pytest.param([answer(200, b'{"status":"\xff"}')], "makes no sense", id="not UTF-8"),
        pytest.param([answer(200, b'{"x":' + b"[" * 99_999)], "makes no sense", id="too deep"),
        pytest.param([now(), bomb(80)], "unpacks to more than 200 times", id="too large"),
        pytest.param([packed(b"no gzip")], "the answer is not gzip", id="not gzip"),
        pytest.param([packed(b"", "br")], "packed as 'br'", id="packed as we did not ask for"),
        pytest.param([now(), vector()], "no node of the cluster is in", id="no nodes"),
        pytest.param(
            [*whole_round()[:4], answer(503, b"")], "HTTP 503 for sum", id="nodes ok, pods failed"
        ),
    ],
)
async def test_an_answer_that_cannot_be_used_fails_the_round(steps: list[Step], words: str) -> None:
    with pytest.raises(UsageError, match=f"^prometheus: .*{words}"):
        await sampled(*steps)


async def test_what_is_said_of_nodes_holds_where_no_pod_is_measured() -> None:
    sample, _ = await sampled(*whole_round()[:4], vector())

    assert sample.nodes[NodeName("n1")].cpu_milli == 1500.0
    assert sample.pods == {}
    assert sample.no_pods.startswith("no pod of the cluster is in the answer to sum by")
    assert "prometheus.podJobs" in sample.no_pods


async def test_a_series_that_makes_no_sense_leaves_the_others_alone() -> None:
    odd = ({"node": "n2"}, "much")
    histogram = answer(
        200,
        b'{"status":"success","data":{"resultType":"vector","result":['
        b'{"metric":{"node":"n1"},"value":[1,"2048"]},{"metric":{"node":"n2"},"histogram":[1,{}]},'
        b'{"metric":{"node":"\xff"},"value":[1,"1"]},{"metric":{"node":null},"value":[1,"1"]}]}}',
    )
    steps = [now(), vector(odd, ({"node": "n1"}, "1.5")), histogram, *whole_round()[3:]]
    with capture_logs() as logs:
        sample, _ = await sampled(*steps)
    assert [usage.mem_bytes for usage in sample.nodes.values()] == [2048.0]
    assert sample.skipped == 3
    assert [each["count"] for each in logs if each["event"] == "series skipped"] == [1, 2]


async def test_an_answer_may_be_packed() -> None:
    asked = whole_round()
    asked[0] = packed(gzip.compress(json.dumps(SCALAR).encode()))
    sample, requests = await sampled(*asked)
    assert len(sample.nodes) == 1
    assert requests[0].headers["accept-encoding"] == "gzip"


async def test_a_server_that_says_nothing_fails_the_round_in_time() -> None:
    clock = FakeClock()
    async with ScriptedApi(no_answer) as api:
        settings = Prometheus(url=api.url, timeout=Duration(7.0))
        async with PrometheusSource(settings, nodes=lambda: NODES, clock=clock) as source:
            task = asyncio.create_task(source.sample())
            await api.until(lambda: bool(api.requests))
            await clock.advance(7.0)
            with pytest.raises(UsageError, match="no answer within 7 s from http"):
                await task


async def test_a_server_that_drips_does_not_hold_the_round_for_ever() -> None:
    clock = FakeClock()

    async def drip(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(b'{"status":')
        await exchange.closed()

    async with ScriptedApi(drip) as api:
        settings = Prometheus(url=api.url, timeout=Duration(7.0))
        async with PrometheusSource(settings, nodes=lambda: NODES, clock=clock) as source:
            task = asyncio.create_task(source.sample())
            await api.until(lambda: bool(api.requests))
            await clock.advance(7.0)
            with pytest.raises(UsageError, match="no answer within 7 s"):
                await task


async def test_a_server_that_is_not_there_fails_the_round() -> None:
    async with ScriptedApi() as api:
        settings = Prometheus(url=api.url)
        await api.stop()
        async with PrometheusSource(settings, nodes=lambda: NODES, clock=FakeClock()) as source:
            with pytest.raises(UsageError, match=f"from {api.url}"):
                await source.sample()


async def test_an_address_that_is_none_fails_the_round() -> None:
    settings = Prometheus.model_construct(url="prometheus:9090")
    async with PrometheusSource(settings, nodes=lambda: NODES, clock=FakeClock()) as source:
        with pytest.raises(UsageError, match="from prometheus:9090"):
            await source.sample()


async def test_the_token_is_read_anew_for_every_round(tmp_path: Path) -> None:
    token = tmp_path / "token"
    async with ScriptedApi(*whole_round(), *whole_round()) as api:
        settings = Prometheus(url=f"{api.url}/", bearer_token_file=str(token))
        async with PrometheusSource(settings, nodes=lambda: NODES, clock=FakeClock()) as source:
            for text in ("first", "second\n"):
                token.write_text(text)
                await source.sample()

    sent = [request.headers["authorization"] for request in api.requests]
    assert sent == ["Bearer first"] * 7 + ["Bearer second"] * 7
    assert all(request.headers["user-agent"].startswith("evenkeel/") for request in api.requests)


async def test_only_the_named_jobs_are_asked_for() -> None:
    _, requests = await sampled(*whole_round(), pod_jobs=r'my\.kubelet|"x"')
    asked = [parse_qs(request.body.decode())["query"][0] for request in requests][1:]
    nodes, pods = asked[:3], asked[3:]
    wanted = 'job=~"node-exporter|prometheus-node-exporter|kubernetes-node-exporter"'
    assert all(wanted in query for query in nodes)
    assert nodes[1].count(wanted) == 2
    assert all(r'job=~"my\\.kubelet|\"x\""' in query for query in pods)


async def test_the_token_of_our_account_is_not_sent_though_a_link_led_elsewhere_before(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    async with ScriptedApi(*whole_round()) as api:
        settings = Prometheus(url=api.url, bearer_token_file=str(token))
        async with PrometheusSource(settings, nodes=lambda: NODES, clock=FakeClock()) as source:
            token.write_text("theirs")
            await source.sample()
            token.unlink()
            token.symlink_to("/run/secrets/kubernetes.io/serviceaccount/token")
            with pytest.raises(UsageError, match="which opens the Kubernetes API"):
                await source.sample()
        assert len(api.requests) == 7


async def test_a_token_file_that_is_missing_fails_the_round() -> None:
    with pytest.raises(UsageError, match="/no/such/token"):
        await sampled(bearer_token_file="/no/such/token")


@pytest.mark.parametrize("content", [None, "not a certificate"], ids=["missing", "nonsense"])
async def test_a_ca_file_that_cannot_be_used_is_said_at_once(
    tmp_path: Path, content: str | None
) -> None:
    ca_file = tmp_path / "ca.pem"
    if content is not None:
        ca_file.write_text(content)
    with pytest.raises(UsageError, match=r"ca\.pem"):
        PrometheusSource(
            Prometheus(url="https://x", ca_file=str(ca_file)),
            nodes=lambda: NODES,
            clock=FakeClock(),
        )


async def test_a_ca_of_ones_own_is_trusted_and_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = server_context(authority.issue("server", names=["127.0.0.1"]))
    trusting = {"ca_file": str(authority.certificate)}
    careless = {"insecure_skip_verify": True}
    for settings in (trusting, careless):
        async with ScriptedApi(*whole_round(), tls=context) as api:
            sample = await sampled_from(api, **settings)
        assert set(sample.nodes) == {"n1"}
    async with ScriptedApi(*whole_round(), tls=context) as api:
        with pytest.raises(UsageError, match=r"(?i)certificate.* from https"):
            await sampled_from(api)


NETWORK = {"name": "network", "node_query": "sent $node", "pod_query": "sent by pod"}


def network(**more: Any) -> dict[str, Any]:
    return {"resources": (FurtherResource.model_validate({**NETWORK, **more}, by_name=True),)}


async def test_further_resources_are_read_by_their_own_queries() -> None:
    steps = [*whole_round(), of_node("70"), of_pod("30")]
    sample, requests = await sampled(*steps, **network(capacity=100.0))
    [found] = sample.further
    assert (found.nodes, found.pods, found.offered) == (
        {"n1": 70.0},
        {"shop/web-1": 30.0},
        {"n1": 100.0},
    )
    assert form(requests[7]) == {"query": "sent node", "time": "1800000000.000"}


async def test_their_capacity_may_be_a_query() -> None:
    steps = [*whole_round(), of_node("250"), of_node("70"), of_pod("30")]
    sample, _ = await sampled(*steps, **network(capacity_query="speed"))
    assert sample.further[0].offered == {"n1": 250.0}


@pytest.mark.parametrize(("name", "amount"), [("nvidia.com/gpu", 4.0), ("nvidia.com/mig", 0.0)])
async def test_their_capacity_may_be_what_nodes_report(name: str, amount: float) -> None:
    node = msgspec.structs.replace(
        NODES[0], allocatable=Resources(4000, 1 << 34, scalars=(("nvidia.com/gpu", 4),))
    )
    [wanted] = network(allocatable=name)["resources"]
    assert offers(wanted, [node]) == {"n1": amount}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3", "1e300"])
async def test_what_cannot_be_an_amount_is_not_known(value: str) -> None:
    steps = [*whole_round(), of_node(value), of_pod("30")]
    sample, _ = await sampled(*steps, **network(capacity=100.0))
    assert sample.further[0].nodes == {}
    assert set(sample.nodes) == {"n1"}


async def test_of_several_series_of_a_node_the_largest_counts() -> None:
    labels = {"node": "n1", **{f"label_{number}": "x" * 200 for number in range(300)}}
    twice = vector(({"node": "n1"}, "20"), (labels, "70"), ({"node": "elsewhere"}, "99"))
    sample, _ = await sampled(*whole_round(), twice, of_pod("1"), **network(capacity=100.0))
    assert sample.further[0].nodes == {"n1": 70.0}


async def test_a_query_that_fails_hides_its_own_resource_only() -> None:
    refused = answer(400, {"status": "error", "error": "parse error"})
    with capture_logs() as logs:
        sample, _ = await sampled(*whole_round(), refused, **network(capacity=100.0))
    assert sample.further == (FurtherSample(),)
    assert set(sample.nodes) == {"n1"}
    assert [line["resource"] for line in logs if line["event"] == "resource not read"] == [
        "network"
    ]


async def test_a_query_that_goes_on_failing_is_logged_once() -> None:
    refused = answer(400, {"status": "error", "error": "parse error"})
    fails, works = [*whole_round(), refused], [*whole_round(), of_node("20"), of_pod("1")]
    with capture_logs() as logs:
        async with ScriptedApi(*fails, *fails, *works, *fails) as api:
            made = Prometheus(url=api.url, **network(capacity=100.0))
            async with PrometheusSource(made, nodes=lambda: NODES, clock=FakeClock()) as source:
                told = []
                for _ in range(4):
                    await source.sample()
                    told.append([line["event"] for line in logs].count("resource not read"))
    assert told == [1, 1, 1, 2]
