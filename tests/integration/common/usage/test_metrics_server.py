# SPDX-License-Identifier: Apache-2.0
"""The metrics API over a real socket, and everything that can go wrong with it."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from common.config import SourceKind
from common.usage import Sample, UsageError
from common.usage.auto import open_source
from common.usage.metrics_server import MAX_LIST_BYTES, MetricsServerSource
from tests.support.clock import FakeClock
from tests.support.stands.scripted_api import (
    Exchange,
    ScriptedApi,
    Step,
    answer,
    client_of,
    no_answer,
    status,
)

BLANKS = b" " * (8 << 20)
STAMP = "2027-01-15T08:00:00Z"


def measured(name: str, cpu: str = "100m", memory: str = "1Mi", **more: Any) -> dict[str, Any]:
    usage = {"cpu": cpu, "memory": memory}
    metadata = {"name": name, "namespace": "shop"}
    both = {"usage": usage, "containers": [{"name": "app", "usage": usage}]}
    return {"metadata": metadata, "timestamp": STAMP, "window": "10s", **both, **more}


def listing(*items: dict[str, Any]) -> Step:
    return answer(200, {"kind": "List", "metadata": {}, "items": list(items)})


async def sampled(folder: Path, *steps: Step) -> tuple[Sample, ScriptedApi]:
    clock = FakeClock()
    async with ScriptedApi(*steps) as api, client_of(api, folder, clock) as client:
        return await MetricsServerSource(client).sample(), api


async def test_one_list_of_nodes_and_one_of_pods_make_a_sample(tmp_path: Path) -> None:
    sample, api = await sampled(
        tmp_path,
        listing(measured("n1", cpu="1500000000n", memory="2048Ki"), measured("n2")),
        listing(measured("web-1"), measured("web-2", cpu="2")),
    )

    assert [request.path for request in api.requests] == [
        "/apis/metrics.k8s.io/v1beta1/nodes",
        "/apis/metrics.k8s.io/v1beta1/pods",
    ]
    assert {name: usage.cpu_milli for name, usage in sample.nodes.items()} == {
        "n1": 1500.0,
        "n2": 100.0,
    }
    assert {key: usage.cpu_milli for key, usage in sample.pods.items()} == {
        "shop/web-1": 100.0,
        "shop/web-2": 2000.0,
    }
    assert sample.pods["shop/web-1"].end_s == 1_800_000_000.0
    assert sample.pods["shop/web-1"].window_s == 10.0


async def test_reading_has_a_checkpoint_at_every_entry(tmp_path: Path) -> None:
    pauses, clock = list[str](), FakeClock()
    steps = (listing(measured("n1")), listing(measured("web-1"), measured("odd", cpu="?")))
    async with (
        ScriptedApi(*steps) as api,
        client_of(api, tmp_path, clock) as client,
        open_source(
            SourceKind.METRICS_SERVER,
            client,
            nodes=tuple,
            clock=clock,
            checkpoint=lambda: pauses.append("one"),
        ) as source,
    ):
        await source.sample()
    assert len(pauses) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b'{"items":' + b"[" * 100_000,
        b'{"items":[{"metadata":{"name":"n"},"x":' + b"[" * 100_000,
        b'{"items":5}',
        b"",
    ],
    ids=["not UTF-8", "deep", "deep inside an entry", "no list", "empty"],
)
async def test_an_answer_that_cannot_be_read_fails_the_round(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(UsageError, match=r"^metrics-server: no NodeMetrics: "):
        await sampled(tmp_path, answer(200, body))


async def test_what_cannot_be_read_of_one_leaves_the_others_alone(tmp_path: Path) -> None:
    body = msgspec.json.encode({"items": [measured("n1"), measured("n2"), measured("n3")]})
    with capture_logs() as logs:
        sample, _ = await sampled(
            tmp_path,
            answer(200, body.replace(b"n2", b"\xff\xff")),
            listing(measured("web-1", window=None), measured("web-2", cpu="much"), measured("w")),
        )
    assert list(sample.nodes) == ["n1", "n3"]
    assert list(sample.pods) == ["shop/w"]
    assert sample.skipped == 3
    told = [each["error"].partition(":")[0] for each in logs]
    assert told == ["without a readable name", "shop/web-1"]


async def test_an_answer_that_unpacks_to_far_more_than_it_is_is_given_up(tmp_path: Path) -> None:
    body = gzip.compress(b" " * (40 << 20), 6)
    step = answer(200, body, headers={"Content-Encoding": "gzip"})
    with pytest.raises(UsageError, match="unpacks to more than 200 times its size"):
        await sampled(tmp_path, step)


async def test_an_answer_larger_than_is_read_is_given_up(tmp_path: Path) -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.begin()
        for _ in range(MAX_LIST_BYTES // len(BLANKS) + 1):
            await exchange.chunk(BLANKS)
        await exchange.closed()

    with pytest.raises(UsageError, match="larger than 256 MiB"):
        await sampled(tmp_path, endless)


async def test_empty_lists_measure_nothing(tmp_path: Path) -> None:
    sample, _ = await sampled(tmp_path, answer(200, {"items": None}), answer(200, {"items": []}))

    assert sample == Sample(nodes={}, pods={})


async def test_entries_that_make_no_sense_are_skipped_and_said_once(tmp_path: Path) -> None:
    broken = measured("n2", cpu="lots")
    clock = FakeClock()
    async with ScriptedApi() as api, client_of(api, tmp_path, clock) as client:
        source = MetricsServerSource(client)
        with capture_logs() as logs:
            for _ in range(3):
                api.then(listing(measured("n1"), broken), listing(measured("web-1")))
                sample = await source.sample()

    assert set(sample.nodes) == {"n1"}
    assert [(entry["kind"], entry["count"]) for entry in logs] == [("NodeMetrics", 1)]
    assert "lots" in logs[0]["error"]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        pytest.param([status(503, message="service unavailable")], "no NodeMetrics", id="503"),
        pytest.param([status(404, message="not here")], "no NodeMetrics: .*not here", id="404"),
        pytest.param(
            [status(403, "Forbidden", "no right")], "no NodeMetrics: .*no right", id="403"
        ),
        pytest.param(
            [answer(200, b'{"items": [')], "no NodeMetrics: .*makes no sense", id="cut off"
        ),
        pytest.param([answer(200, b"<html>")], "no NodeMetrics: .*makes no sense", id="not JSON"),
        pytest.param([answer(200, {"items": 7})], "no NodeMetrics: .*makes no sense", id="no list"),
        pytest.param(
            [listing(measured("n1")), status(500, message="boom")],
            "no PodMetrics: .*boom",
            id="nodes answered, pods failed",
        ),
    ],
)
async def test_a_list_that_cannot_be_had_fails_the_round(
    tmp_path: Path, steps: list[Step], words: str
) -> None:
    with pytest.raises(UsageError, match=f"metrics-server: {words}"):
        await sampled(tmp_path, *steps)


async def test_a_server_that_says_nothing_fails_the_round(tmp_path: Path) -> None:
    clock = FakeClock()
    async with ScriptedApi(no_answer) as api, client_of(api, tmp_path, clock) as client:
        with pytest.raises(UsageError, match="metrics-server: no NodeMetrics"):
            await MetricsServerSource(client, timeout_s=0.05).sample()


async def test_a_server_that_is_not_there_fails_the_round(tmp_path: Path) -> None:
    clock = FakeClock()
    async with ScriptedApi() as api, client_of(api, tmp_path, clock) as client:
        await api.stop()
        with pytest.raises(UsageError, match="metrics-server: no NodeMetrics"):
            await MetricsServerSource(client).sample()


async def test_a_sample_can_be_cancelled(tmp_path: Path) -> None:
    clock = FakeClock()
    async with ScriptedApi(no_answer) as api, client_of(api, tmp_path, clock) as client:
        task = asyncio.create_task(MetricsServerSource(client).sample())
        await api.until(lambda: bool(api.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
