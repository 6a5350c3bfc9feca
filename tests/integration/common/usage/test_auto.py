# SPDX-License-Identifier: Apache-2.0
"""Which source is asked, and what `auto` finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.config import Prometheus, SourceKind
from common.usage import SourceChoice, UsageError
from common.usage.auto import choose_source, open_source
from tests.support.clock import FakeClock
from tests.support.stands.scripted_api import ScriptedApi, Step, answer, client_of, status

SERVED = answer(200, {"resources": [{"name": "nodes"}, {"name": "pods"}]})


async def chosen(folder: Path, kind: SourceKind, *steps: Step) -> tuple[SourceChoice, ScriptedApi]:
    clock = FakeClock()
    async with ScriptedApi(*steps) as api, client_of(api, folder, clock) as client:
        return await choose_source(kind, client), api


@pytest.mark.parametrize(
    ("step", "name", "words"),
    [
        pytest.param(SERVED, "metrics-server", "the cluster serves", id="served"),
        pytest.param(status(404), "requests", "does not serve", id="not served"),
        pytest.param(status(503), "metrics-server", "does not answer", id="registered, but away"),
        pytest.param(
            answer(200, {"resources": None}), "requests", "lacks nodes and pods", id="empty"
        ),
        pytest.param(
            answer(200, {"resources": [{"name": "pods"}]}), "requests", "lacks nodes", id="half"
        ),
    ],
)
async def test_auto_asks_and_says_what_it_found(
    tmp_path: Path, step: Step, name: str, words: str
) -> None:
    found, api = await chosen(tmp_path, SourceKind.AUTO, step)

    assert found.asked == name
    assert found.without_metrics is (name == "requests")
    assert [request.path for request in api.requests] == ["/apis/metrics.k8s.io/v1beta1"]
    assert words in found.why


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(status(500, message="boom"), id="500"),
        pytest.param(status(403, "Forbidden", "no right"), id="403"),
        pytest.param(answer(200, b"<html>"), id="nonsense"),
    ],
)
async def test_auto_does_not_guess_when_it_cannot_tell(tmp_path: Path, step: Step) -> None:
    with pytest.raises(UsageError, match="cannot tell whether"):
        await chosen(tmp_path, SourceKind.AUTO, step)


async def test_a_source_that_fails_later_does_not_turn_into_requests(tmp_path: Path) -> None:
    clock = FakeClock()
    async with (
        ScriptedApi(SERVED) as api,
        client_of(api, tmp_path, clock) as client,
    ):
        choice = await choose_source(SourceKind.AUTO, client)
        async with open_source(choice.asked, client, nodes=tuple, clock=clock) as source:
            for _ in range(3):
                api.then(status(404))
                with pytest.raises(UsageError):
                    await source.sample()

    assert source.name == "metrics-server"


@pytest.mark.parametrize(
    "kind", [SourceKind.METRICS_SERVER, SourceKind.PROMETHEUS, SourceKind.REQUESTS]
)
async def test_a_source_that_was_named_is_taken_unasked(tmp_path: Path, kind: SourceKind) -> None:
    found, api = await chosen(tmp_path, kind)

    assert found.asked is kind
    assert not found.without_metrics
    assert api.requests == []


async def test_prometheus_needs_its_settings(tmp_path: Path) -> None:
    settings, clock = Prometheus(url="http://127.0.0.1:1"), FakeClock()
    async with ScriptedApi() as api, client_of(api, tmp_path, clock) as client:
        async with open_source(
            SourceKind.PROMETHEUS, client, nodes=tuple, prometheus=settings, clock=clock
        ) as source:
            assert source.name == "prometheus"
        with pytest.raises(UsageError, match="no address"):
            async with open_source(SourceKind.PROMETHEUS, client, nodes=tuple, clock=clock):
                pass
