# SPDX-License-Identifier: Apache-2.0
"""The scheduler's file: what is heeded, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.config import ConfigError
from simulator.scheduler import read_config
from tests.support.repository import SCHEDULER_CONFIG

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "scheduler.yaml"
    path.write_text(HEAD + text)
    return path


def test_the_shipped_file_is_understood() -> None:
    config = read_config(SCHEDULER_CONFIG)
    assert config.scheduler_names == {"default-scheduler"}
    assert config.percentage("default-scheduler") == 100


def test_extenders_are_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
extenders:
  - urlPrefix: http://127.0.0.1:8888/
    filterVerb: filter
    prioritizeVerb: prioritize
    weight: 5
    nodeCacheCapable: true
    ignorable: true
    httpTimeout: 200ms
  - urlPrefix: http://127.0.0.1:8889
    filterVerb: filter
    managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]
""",
    )
    first, second = read_config(path).extenders
    assert (first.weight, first.node_cache_capable, first.ignorable) == (5, True, True)
    assert first.timeout_s == pytest.approx(0.2)
    assert second.timeout_s == pytest.approx(5.0)
    assert second.managed_resources[0].name == "example.com/gpu"


def test_a_profile_may_have_its_own_percentage(tmp_path: Path) -> None:
    config = read_config(
        written(
            tmp_path,
            """
percentageOfNodesToScore: 30
profiles:
  - schedulerName: default-scheduler
  - {schedulerName: thorough, percentageOfNodesToScore: 100}
""",
        )
    )
    assert config.percentage("default-scheduler") == 30
    assert config.percentage("thorough") == 100
    assert config.percentage("somebody-else") == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("extenders: [{urlPrefix: x, prioritizeVerb: p}]", "positive weight"),
        ("extenders: [{urlPrefix: x, bindVerb: b}, {urlPrefix: y, bindVerb: b}]", "multiple"),
        ("extenders: [{urlPrefix: x, httpTimeout: soon}]", "soon is not a duration"),
        ("extenders: [{filterVerb: f}]", "urlPrefix"),
        ("profiles: [{schedulerName: a}, {schedulerName: a}]", "duplicate scheduler name a"),
        ("extenders: 3", "Expected"),
        ("extenders: [", "expected"),
    ],
)
def test_what_the_real_one_refuses_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_config(written(tmp_path, text))


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\n")
    with pytest.raises(ConfigError, match="must be a KubeSchedulerConfiguration"):
        read_config(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "missing.yaml")
