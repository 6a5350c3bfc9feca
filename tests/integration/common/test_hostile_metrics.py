# SPDX-License-Identifier: Apache-2.0
"""Whatever the metrics API answers, both programs go on, and read it again when it is well."""

from __future__ import annotations

import asyncio
import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest

from common.clock import SYSTEM
from common.config import RebalancerConfiguration
from common.kube import resources as kinds
from common.kube.client import connect
from common.metrics import Metrics
from common.observer import Observer
from simulator import build
from tests.support.stands.scripted_api import write_kubeconfig
from tests.support.stands.static_api import StaticApi
from tests.support.worlds.wire import stamped

PATIENCE_S = 60.0
PACKED = {"Content-Encoding": "gzip"}
ANSWERS = {
    "not UTF-8": (b"\xff", {}),
    "not UTF-8 inside": (b'{"items":[{"metadata":{"name":"\xff"}}],"x":"\xff"', {}),
    "too deep": (b"[" * 200_000, {}),
    "too deep inside": (b'{"items":[' + b"[" * 200_000, {}),
    "a bomb": (gzip.compress(b" " * (40 << 20), 6), PACKED),
    "not gzip": (b"plain", PACKED),
    "nothing": (b"", {}),
    "numbers": (b'{"items":[1e999,' + b"9" * 5000 + b"]}", {}),
}


def measured() -> dict[str, object]:
    stamp = datetime.fromtimestamp(SYSTEM.now() - 2.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    usage = {"cpu": "4", "memory": "1Gi"}
    return {"metadata": {"name": "n1"}, "timestamp": stamp, "window": "10s", "usage": usage}


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
async def test_no_answer_of_the_metrics_api_ends_a_program(tmp_path: Path, answer: str) -> None:
    objects = {kinds.NODES: [stamped(build.node("n1"))], kinds.NODE_METRICS: [measured()]}
    config = RebalancerConfiguration.model_validate(
        {"usageSource": "metrics-server", "usageInterval": "100ms"}
    )
    api, metrics = StaticApi(objects, measured=True), Metrics("test")
    api.spoiled = ANSWERS[answer]
    async with api.serving():
        kubeconfig = str(write_kubeconfig(tmp_path / "kubeconfig", api.url))
        async with connect(kubeconfig=kubeconfig, clock=SYSTEM) as client:
            observer = Observer(client, config, clock=SYSTEM, metrics=metrics)
            running = asyncio.create_task(observer.run())

            async def until(result: str, count: float) -> None:
                labels = {"result": result}
                async with asyncio.timeout(PATIENCE_S):
                    while (_value(metrics, "usage_samples_total", labels)) < count:
                        assert not running.done(), running.exception()
                        await SYSTEM.sleep(0.02)

            try:
                spoils = answer != "numbers"
                await until("failed" if spoils else "taken", 2)
                api.spoiled = None
                await until("taken", 4)
                assert (await observer.look()).load.nodes
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


def _value(metrics: Metrics, name: str, labels: dict[str, str]) -> float:
    return metrics.registry.get_sample_value(f"evenkeel_{name}", labels) or 0.0
