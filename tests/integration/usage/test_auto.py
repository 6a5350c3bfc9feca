"""Which source is asked is decided once, at start, and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from common.usage import SourceKind, UsageError
from common.usage.auto import open_source
from common.usage.prometheus import PrometheusSettings
from tests.support.clock import FakeClock
from tests.support.scripted_api import ScriptedApi, Step, answer, client_of, status

SERVED = answer(200, {"resources": [{"name": "nodes"}, {"name": "pods"}]})


async def chosen(
    folder: Path, kind: SourceKind, *steps: Step, prometheus: PrometheusSettings | None = None
) -> tuple[str, list[Any], ScriptedApi]:
    clock = FakeClock()
    async with ScriptedApi(*steps) as api, client_of(api, folder, clock) as client:
        with capture_logs() as logs:
            async with open_source(
                kind, client, nodes=tuple, prometheus=prometheus, clock=clock
            ) as source:
                return source.name, logs, api


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
async def test_auto_asks_once_and_says_what_it_chose(
    tmp_path: Path, step: Step, name: str, words: str
) -> None:
    found, logs, api = await chosen(tmp_path, SourceKind.AUTO, step)

    assert found == name
    assert [request.path for request in api.requests] == ["/apis/metrics.k8s.io/v1beta1"]
    assert [(entry["event"], entry["source"]) for entry in logs] == [("usage source chosen", name)]
    assert words in logs[0]["why"]


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
        open_source(SourceKind.AUTO, client, nodes=tuple, clock=clock) as source,
    ):
        for _ in range(3):
            api.then(status(404))
            with pytest.raises(UsageError):
                await source.sample()

    assert source.name == "metrics-server"


@pytest.mark.parametrize("kind", [SourceKind.METRICS_SERVER, SourceKind.REQUESTS])
async def test_a_source_that_was_named_is_taken_unasked(tmp_path: Path, kind: SourceKind) -> None:
    name, _, api = await chosen(tmp_path, kind)

    assert name == kind
    assert api.requests == []


async def test_prometheus_needs_its_settings(tmp_path: Path) -> None:
    settings = PrometheusSettings("http://127.0.0.1:1")

    name, _, _ = await chosen(tmp_path, SourceKind.PROMETHEUS, prometheus=settings)
    assert name == "prometheus"
    with pytest.raises(UsageError, match="no address"):
        await chosen(tmp_path, SourceKind.PROMETHEUS)
