# SPDX-License-Identifier: Apache-2.0
"""One step ahead on drawn recordings of kubelets: windows of every length, read at any moment."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench.recordings import ALLOCATABLE_MILLI, SETTLED_S, show, steps

Json = dict[str, Any]  # Any: the items of the metrics API

BEGAN_S = 1_794_900_000.0
OVERHEAD_MILLI = 27.0
LASTING_S = 300.0
REQUEST_MILLI = 100
"""Of it 85m are expected, which is what pods that start use."""


class Kubelet:
    """A node whose pods use a constant amount each from a moment on, measured as real ones are."""

    def __init__(self, name: str, dice: random.Random, resolution_s: float) -> None:
        self.name = name
        self._dice = dice
        self._resolution_s = resolution_s
        self._offset_s = dice.uniform(0.0, resolution_s)
        self.pods = {f"{name}-old-{i}": (-900.0, dice.choice((40.0, 85.0))) for i in range(3)}

    def start(self, at_s: float) -> None:
        self.pods[f"{self.name}-new-{len(self.pods)}"] = (at_s, 85.0)

    def read(self, now_s: float) -> tuple[Json, list[Json]]:
        """Return what the metrics API would say of the node and of its pods."""
        end_s = now_s - (now_s - self._offset_s) % self._resolution_s
        window_s = self._resolution_s
        used = OVERHEAD_MILLI + sum(
            milli * _share(began_s, end_s, window_s) for began_s, milli in self.pods.values()
        )
        used *= self._dice.uniform(0.995, 1.005)
        node = {"metadata": {"name": self.name}, **_stamps(end_s, window_s), "usage": _usage(used)}
        return node, [pod for name in self.pods for pod in self._pod(name, end_s)]

    def _pod(self, name: str, node_end_s: float) -> list[Json]:
        began_s, milli = self.pods[name]
        dice = random.Random(f"{name} {node_end_s}")
        end_s, window_s = node_end_s + dice.uniform(-17.0, 9.0), dice.uniform(6.0, 30.0)
        if end_s - window_s < began_s:
            return []  # metrics-server waits for two readings of the same container
        container = {"name": "app", "usage": _usage(milli)}
        metadata = {"name": name, "namespace": "default"}
        return [{"metadata": metadata, **_stamps(end_s, window_s), "containers": [container]}]


def _share(began_s: float, end_s: float, window_s: float) -> float:
    return min(1.0, max(0.0, (end_s - began_s) / window_s))


def _usage(milli: float) -> Json:
    return {"cpu": f"{round(milli * 1e6)}n", "memory": "65536Ki"}


def _stamps(end_s: float, window_s: float) -> Json:
    return {"timestamp": _stamp(end_s), "window": f"{window_s:.3f}s"}


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(int(BEGAN_S + at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def recording(seed: int, resolution_s: float) -> list[Json]:
    """Draw five minutes; on one node pods start in the third."""
    dice = random.Random(seed)
    kubelets = [Kubelet(f"real-{i}", dice, resolution_s) for i in range(3)]
    starts_s = dice.uniform(130.0, 170.0)
    rows: list[Json] = []
    at_s = 0.0
    while at_s < LASTING_S:
        if at_s >= starts_s and len(kubelets[0].pods) == 3:
            kubelets[0].start(at_s)
            kubelets[0].start(at_s)
        read = [kubelet.read(at_s) for kubelet in kubelets]
        objects = [
            [name, kubelet.name, _stamp(began_s)]
            for kubelet in kubelets
            for name, (began_s, _) in kubelet.pods.items()
        ]
        nodes = [node for node, _ in read]
        pods = [pod for _, found in read for pod in found]
        rows.append({"t": BEGAN_S + at_s, "nodes": nodes, "pods": pods, "objs": objects})
        at_s += 4.3
    return rows


@pytest.mark.parametrize("resolution_s", [10.0, 15.0, 20.0, 30.0, 60.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_next_sample_is_foreseen_within_two_points(seed: int, resolution_s: float) -> None:
    found = list(steps(recording(seed, resolution_s), REQUEST_MILLI))
    late = [step for step in found if step.at_s >= SETTLED_S and not step.mixed]

    assert any(step.measured.cpu_milli > 0.5 * ALLOCATABLE_MILLI for step in late)
    assert max(abs(step.cpu_points) for step in late) <= 2.0
    assert max(abs(step.mem_points) for step in late) <= 2.0


def test_a_recording_is_shown_per_minute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "drawn.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in recording(1, 15.0)))
    show(file, REQUEST_MILLI)
    said = capsys.readouterr().out

    assert said.startswith("drawn.jsonl: 70 readings")
    assert "after two minutes" in said
    assert "windows in which a pod started" in said
