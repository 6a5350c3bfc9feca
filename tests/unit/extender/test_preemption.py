"""Preemption: which candidates are kept, whoever would have to go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from common.cluster.records import PodUid
from extender.asking import Victims
from tests.support.advisor_world import AdvisorWorld

CASES = yaml.safe_load(Path(__file__).with_name("preemption.yaml").read_text())
SOMEBODY = Victims([PodUid("victim")], 0)
NOBODY = Victims([], 0)


def world_of(case: dict[str, Any]) -> AdvisorWorld:
    world = AdvisorWorld()
    for name, maintenance in case["nodes"].items():
        world.node(name, maintenance=maintenance)
    if "move" in case:
        world.migration("m", **case["move"])
    return world


@pytest.mark.parametrize("victims", [SOMEBODY, NOBODY], ids=["victims", "no victims"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_table_of_candidates(case: dict[str, Any], victims: Victims) -> None:
    world = world_of(case)
    pod = world.pod("new", **case.get("pod", {}))
    kept = world.advisor.preempt(pod, dict.fromkeys(case["candidates"], victims))
    assert list(kept) == case["kept"]


def test_asking_about_preemption_takes_no_slot() -> None:
    world = world_of({"nodes": {"a": "", "b": "", "c": ""}})
    world.migration("m", owner="web", source="a", target="b")
    world.advisor.preempt(world.pod("one", owner="web"), {"a": SOMEBODY, "c": SOMEBODY})
    found = world.intents.guidance(world.pod("two", owner="web").record, ["a", "b"])
    assert found is not None
    assert found.target == "b"


def test_before_the_cluster_is_known_all_candidates_are_kept() -> None:
    world = world_of({"nodes": {"a": "true"}})
    world.ready = False
    assert list(world.advisor.preempt(world.pod("new"), {"a": SOMEBODY})) == ["a"]
    assert world.count("neutral_answers_total", verb="preempt", cause="cold") == 1
