# SPDX-License-Identifier: Apache-2.0
"""The configuration while the program runs: followed by content, refused when broken."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from common.config import ConfigError, RebalancerConfiguration, load_config
from common.metrics import Metrics
from rebalancer import config_reload as reload
from rebalancer.config_reload import FIXED, ConfigSource, merged, needs_restart
from tests.support.clock import FakeClock

HEAD = "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\n"


class Folder:
    """A mounted ConfigMap: the file is a link to a link that is turned at each change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self.file = path / "config.yaml"
        self.write("")
        self.file.symlink_to("..data/config.yaml")

    def write(self, text: str) -> None:
        self._count += 1
        version = self._path / f"..{self._count}"
        version.mkdir()
        (version / "config.yaml").write_text(HEAD + text)
        fresh = self._path / "..data_tmp"
        fresh.symlink_to(version.name)
        fresh.rename(self._path / "..data")


class Followed:
    """A source that is asked when the test wants."""

    def __init__(self, folder: Folder) -> None:
        self.metrics = Metrics("test")
        self.heard: list[RebalancerConfiguration] = []
        first = load_config(str(folder.file), RebalancerConfiguration)
        self.source = ConfigSource(str(folder.file), first, clock=FakeClock(), metrics=self.metrics)
        self.source.listen(self.heard.append)

    def reloads(self, result: str) -> float:
        name = "evenkeel_config_reloads_total"
        return self.metrics.registry.get_sample_value(name, {"result": result}) or 0.0

    @property
    def refused(self) -> float | None:
        return self.metrics.registry.get_sample_value("evenkeel_config_refused")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def test_a_change_is_in_force_once_it_is_seen(folder: Folder) -> None:
    followed = Followed(folder)
    await followed.source.poll()
    folder.write("paused: true\n")
    await followed.source.poll()
    assert followed.source.current.paused
    assert followed.heard == [followed.source.current]
    assert (followed.reloads("applied"), followed.refused) == (1, 0)


async def test_a_broken_file_is_refused_with_its_error_and_the_old_one_stays(
    folder: Folder,
) -> None:
    followed = Followed(folder)
    before = followed.source.current
    folder.write("cpuTreshold: 70\n")
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await followed.source.poll()
    assert followed.source.current is before
    assert (followed.heard, followed.reloads("refused"), followed.refused) == ([], 1, 1)
    [line] = logs
    assert "line 3: cpuTreshold: unknown key, did you mean cpuThreshold?" in line["problem"]


async def test_a_file_that_is_gone_is_refused_too(folder: Folder) -> None:
    followed = Followed(folder)
    await followed.source.poll()
    folder.file.unlink()
    await followed.source.poll()
    assert followed.refused == 1


async def test_a_fixed_file_is_taken(folder: Folder) -> None:
    followed = Followed(folder)
    for text in ("cpuThreshold: [\n", "cpuThreshold: 70.0\n"):
        folder.write(text)
        await followed.source.poll()
    assert followed.source.current.cpu_threshold == 70.0
    assert followed.refused == 0


async def test_keys_that_need_a_restart_are_named_and_keep_their_values(folder: Folder) -> None:
    followed = Followed(folder)
    folder.write("usageInterval: 20s\ncpuThreshold: 70.0\nleaderElection: {name: other}\n")
    with structlog.testing.capture_logs() as logs:
        await followed.source.poll()
    assert followed.source.current.cpu_threshold == 70.0
    assert followed.source.current.usage_interval.seconds == 15
    [warning] = [line for line in logs if line["log_level"] == "warning"]
    assert warning["keys"] == ["leaderElection", "usageInterval"]


async def test_the_file_is_followed_for_ever(folder: Folder) -> None:
    followed, clock = Followed(folder), FakeClock()
    source = ConfigSource(
        str(folder.file), RebalancerConfiguration(), clock=clock, metrics=Metrics("test")
    )
    # It was changed between the start of the program and the first look.
    folder.write("paused: true\n")
    task = asyncio.create_task(source.run())
    await clock.until_sleeping()
    assert source.current.paused
    folder.write("paused: false\n")
    await clock.advance(2)
    await clock.until_sleeping()
    assert not source.current.paused
    assert followed.source.current is not source.current
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_without_a_file_nothing_changes() -> None:
    first = RebalancerConfiguration()
    source = ConfigSource(None, first, clock=FakeClock(), metrics=Metrics("test"))
    await source.run()
    await source.poll()
    assert source.current is first


def test_every_fixed_key_exists_and_is_kept() -> None:
    assert set(FIXED) <= RebalancerConfiguration.model_fields.keys()
    old = RebalancerConfiguration()
    new = RebalancerConfiguration.model_validate({"metricExpiry": "60s", "minGain": 2.0})
    assert needs_restart(old, new) == ("metricExpiry",)
    assert merged(old, new) == RebalancerConfiguration.model_validate({"minGain": 2.0})


async def test_a_file_that_could_not_be_read_a_second_time_is_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(folder)
    folder.write("paused: true\n")

    def torn(path: str, _: object) -> None:
        raise ConfigError(f"{path}: cannot be read: Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(reload, "load_config", torn)
        await followed.source.poll()
    assert (followed.refused, followed.source.current.paused) == (1, False)
    await followed.source.poll()
    assert (followed.refused, followed.source.current.paused) == (0, True)
