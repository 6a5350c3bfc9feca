# SPDX-License-Identifier: Apache-2.0
"""Files of older versions are read and converted, with a warning that says what to write."""

from __future__ import annotations

import pytest

from common.config import (
    ConfigError,
    ExtenderConfiguration,
    RebalancerConfiguration,
    parse_config,
)
from common.config.versions import HISTORY, FormerKey, History, Values

HEAD = "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\n"
OLD_HEAD = "apiVersion: evenkeel.io/v1alpha0\nkind: RebalancerConfiguration\n"


def _from_alpha0(values: Values) -> Values:
    """Say that the former version wrote a fraction, and under another name."""
    share = values.pop("cpuShare")
    return values | {"cpuThreshold": 100.0 * share}


MADE_UP = History(
    keys=(
        FormerKey(
            "cpuLimit", until="9.0.0", why="every key is a threshold", renamed="cpuThreshold"
        ),
    ),
    api_versions={"evenkeel.io/v1alpha0": _from_alpha0},
)


def read(text: str, history: History = HISTORY) -> tuple[RebalancerConfiguration, list[str]]:
    warnings: list[str] = []
    found = parse_config(text, RebalancerConfiguration, "c.yaml", warnings.append, history=history)
    return found, warnings


def test_a_key_without_effect_is_left_out_with_a_warning() -> None:
    found, warnings = read(f"{HEAD}cpuThreshold: 70\npeakDecay: 5m\n")
    assert found == RebalancerConfiguration(cpu_threshold=70.0)
    assert warnings == [
        "c.yaml: line 4: peakDecay: is deprecated and refused from 0.3.0 on, because peaks do not "
        "decide anything any more: remove it"
    ]


def test_the_extender_reads_older_files_too() -> None:
    warnings: list[str] = []
    head = HEAD.replace("Rebalancer", "Extender")
    parse_config(f"{head}peakDecay: 5m\n", ExtenderConfiguration, "c.yaml", warnings.append)
    assert len(warnings) == 1


def test_a_file_of_today_gives_no_warning() -> None:
    assert read(f"{HEAD}cpuThreshold: 70\n")[1] == []


def test_a_renamed_key_keeps_its_value() -> None:
    found, warnings = read(f"{HEAD}cpuLimit: 70\n", MADE_UP)
    assert found.cpu_threshold == 70.0
    assert "write cpuThreshold instead" in warnings[0]


def test_a_wrong_value_of_a_renamed_key_is_refused_in_its_line() -> None:
    with pytest.raises(ConfigError, match="line 3: cpuThreshold: must be at most 100"):
        read(f"{HEAD}cpuLimit: 700\n", MADE_UP)


def test_both_names_of_a_key_are_refused() -> None:
    with pytest.raises(ConfigError, match="line 4: cpuLimit: unknown key"):
        read(f"{HEAD}cpuThreshold: 70\ncpuLimit: 80\n", MADE_UP)


def test_an_older_api_version_is_converted() -> None:
    found, warnings = read(f"{OLD_HEAD}cpuShare: 0.7\n", MADE_UP)
    assert found.cpu_threshold == pytest.approx(70.0)
    assert warnings == [
        "c.yaml: line 1: apiVersion: evenkeel.io/v1alpha0 is deprecated: write evenkeel.io/v1alpha1"
    ]


@pytest.mark.parametrize("version", ["evenkeel.io/v2", "evenkeel.io/v1alpha0", "[a]", "1"])
def test_a_version_that_is_not_known_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=r"apiVersion: must be evenkeel\.io/v1alpha1"):
        read(HEAD.replace("evenkeel.io/v1alpha1", version))


def test_a_file_that_is_refused_warns_of_nothing() -> None:
    warnings: list[str] = []
    text = f"{HEAD}peakDecay: 5m\ncpuThreshold: x\n"
    with pytest.raises(ConfigError):
        parse_config(text, RebalancerConfiguration, "c.yaml", warnings.append)
    assert warnings == []
