# SPDX-License-Identifier: Apache-2.0
"""Scenario files: the shipped ones are in order, wrong ones say where and what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from common.config import ConfigError
from simulator.scenarios import load_scenario, names

Ask = Callable[[str], list[str]]

HEAD = "apiVersion: evenkeel.io/v1alpha1\nkind: Scenario\n"


@pytest.fixture
def problems(tmp_path: Path) -> Ask:
    """Return what is said about a file with this text."""

    def ask(text: str) -> list[str]:
        path = tmp_path / "scenario.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_scenario(str(path))
        return [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]

    return ask


def test_the_promised_scenarios_are_shipped() -> None:
    promised = {"hot-spots", "requests-mislead", "new-empty-node", "tight-pdbs", "nothing-to-do"}
    assert promised <= set(names())


@pytest.mark.parametrize("name", names())
def test_a_shipped_scenario_is_understood(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.description
    assert scenario.workloads


def test_misleading_requests_are_a_tenth_or_half_as_much_again() -> None:
    hungry, *idle = load_scenario("requests-mislead").workloads
    assert (hungry.requests.cpu, hungry.usage.cpu) == ("70m", "700m")
    assert [(each.requests.cpu, each.usage.cpu) for each in idle] == [
        ("600m", "400m"),
        ("450m", "300m"),
    ]


def test_a_wrong_key_in_a_list_gets_its_line_its_path_and_the_nearest(problems: Ask) -> None:
    text = HEAD + "pools:\n  - count: 3\n    memmory: 4Gi\n"
    assert problems(text) == ["line 5: pools[0].memmory: unknown key, did you mean memory?"]


def test_a_wrong_key_deeper_down_too(problems: Ask) -> None:
    text = HEAD + "pools: [{count: 1}]\nworkloads:\n  - name: web\n    usage:\n      cpuCruve: x\n"
    assert problems(text) == [
        "line 7: workloads[0].usage.cpuCruve: unknown key, did you mean cpuCurve?"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: Scenario\npools: []\n", "line 1: apiVersion: missing: write evenkeel.io/v1alpha1"),
        (HEAD + "pools: []\n", "line 3: pools: needs at least one entry"),
        (HEAD, "line 1: pools: missing"),
        (HEAD + "pools: [{}]\n", "line 3: pools[0].count: missing"),
        (
            HEAD + "pools: [{count: three}]\n",
            "line 3: pools[0].count: must be a whole number, not the text three",
        ),
        (HEAD + "pools: [{count: 0}]\n", "line 3: pools[0].count: must be at least 1, not 0"),
        (
            HEAD + "pools: [{count: 1}]\nworkloads: [{name: a, kind: Deploy}]\n",
            "line 4: workloads[0].kind: must be Deployment, StatefulSet, ReplicaSet or Pod, "
            "not Deploy",
        ),
        (
            HEAD + "pools: [{count: 1}]\nworkloads: [{name: a, usage: {cpuCurve: wav}}]\n",
            "line 4: workloads[0].usage.cpuCurve: wav is not a curve: use constant, wave, spike, "
            "leak",
        ),
        (
            HEAD + "pools: [{count: 1}]\nworkloads: [{name: a, pdb: {}}]\n",
            "line 4: workloads[0].pdb.minAvailable: set exactly one of minAvailable and "
            "maxUnavailable",
        ),
        (
            HEAD + "pools: [{count: 1}]\nload: [{nodes: 1, from: 90, to: 80}]\n",
            "line 4: load[0].to: must not be below from",
        ),
        (
            HEAD + "pools: [{count: 1, joinsAfter: 30}]\n",
            "line 3: pools[0].joinsAfter: 30 is not a duration: write 30s, 5m or 1h",
        ),
        ("just words", "line 1: must be a block of keys"),
    ],
)
def test_each_mistake_is_reported_with_its_line(problems: Ask, text: str, expected: str) -> None:
    assert expected in problems(text)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"hot-spot: no such file.*hot-spots"):
        load_scenario("hot-spot")
