# SPDX-License-Identifier: Apache-2.0
"""A plan is readable by machines and by people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import nan

import jsonschema
import pytest
from rich.console import Console

from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from rebalancer.planner.plan import Bound, Level, Move, NodePlan, Plan, Refused, Unmet
from rebalancer.refusals import Refusal
from rebalancer.report import as_json, render, schema
from tests.support.repository import DOCS

PUBLISHED = DOCS / "plan.schema.json"
YOUNG = Refusal("TooYoung", "it has been running for 43s, minPodAge is 2m", permanent=False)
LOCAL = Refusal("LocalStorage", "its data is on the node")


def move(number: int, *, deferred_by: str = "") -> Move:
    return Move(
        pod=f"shop/web-{number}",
        uid=PodUid(f"u{number}"),
        owner="Deployment shop/web",
        source=NodeName("n1"),
        target=NodeName("n2"),
        alternatives=(NodeName("n3"),),
        strategy=Strategy.RESOURCE_OPTIMIZATION,
        reason="AboveCeiling",
        message="n1 uses 95 % CPU (allowed 80 %)",
        chain=number,
        cpu_milli=500.0,
        mem_bytes=1e8,
        this_cycle=not deferred_by,
        deferred_by=deferred_by,
    )


def node(name: str, before: float, after: float, role: str = "", unknown: str = "") -> NodePlan:
    return NodePlan(
        name=NodeName(name),
        before=Level(before, 20.0),
        after=Level(after, 20.0),
        role=role,
        unknown=unknown,
        source_refusals=(Refusal("ControlPlane", "it runs the control plane"),) if not role else (),
    )


PLAN = Plan(
    plan_id="plan-1",
    fingerprint="f",
    strategies=(Strategy.RESOURCE_OPTIMIZATION,),
    goals=("n1 below 80 % CPU", "n7 below 80 % CPU"),
    moves=(move(1), move(2, deferred_by="maxReschedulePods")),
    lower_bound=Bound(evictions=1, proof="ceilings", message="one pod covers the excess of n1"),
    lower_bound_all=Bound(evictions=3, proof="ceilings", message="n7 has to lose two"),
    nodes=(
        node("n1", 95.04, 78.0, "source"),
        node("n2", 40.0, 57.0, "target"),
        node("n3", nan, nan, unknown="NoSample"),
        node("n4", 10.0, 10.0),
    ),
    unmet=(
        Unmet(
            goal="n7 below 80 % CPU",
            strategy=Strategy.RESOURCE_OPTIMIZATION,
            why=Refusal("TooLarge", "every evictable pod of n7 is larger than any room"),
        ),
    ),
    refused=tuple(
        Refused(pod=f"shop/db-{i}", uid=PodUid(f"d{i}"), node=NodeName("n1"), reasons=reasons)
        for i, reasons in enumerate([(YOUNG, LOCAL), (YOUNG,), (YOUNG,), (YOUNG,), (YOUNG,)])
    ),
    notes=("acting needs an extender",),
)
NOTHING = Plan(
    plan_id="plan-0",
    fingerprint="f",
    strategies=(),
    goals=(),
    moves=(),
    lower_bound=Bound(evictions=0, proof="none", message="no goal"),
    nodes=(),
    unmet=(),
    refused=(),
)


def shown(plan: Plan, width: int = 200, asides: Sequence[str] = ()) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(render(plan, asides=asides))
    return capture.get()


@pytest.mark.parametrize("plan", [PLAN, NOTHING], ids=["full", "empty"])
def test_the_document_follows_the_published_schema(plan: Plan) -> None:
    jsonschema.validate(json.loads(as_json(plan)), json.loads(PUBLISHED.read_text()))


def test_the_published_schema_is_up_to_date() -> None:
    assert PUBLISHED.read_text() == schema(), "run `make docs`"


def test_the_schema_refuses_what_is_no_plan() -> None:
    broken = json.loads(as_json(PLAN))
    del broken["moves"][0]["target"]
    with pytest.raises(jsonschema.ValidationError, match="target"):
        jsonschema.validate(broken, json.loads(PUBLISHED.read_text()))


def test_counts_are_those_of_the_moves() -> None:
    made = json.loads(as_json(PLAN))
    counts = ("evictions", "thisCycle", "deferred", "lowerBound")
    assert [made[key] for key in counts] == [2, 1, 1, 1]
    assert made["moves"][1]["deferredBy"] == "maxReschedulePods"


def test_percentages_are_rounded_and_unknown_ones_null() -> None:
    nodes = {each["name"]: each for each in json.loads(as_json(PLAN))["nodes"]}
    assert nodes["n1"]["before"] == {"cpu": 95.0, "memory": 20.0}
    assert nodes["n3"]["before"]["cpu"] is None


def test_people_see_the_proof_beside_the_count() -> None:
    assert (
        "2 evictions, at least 1 needed for the goals that are met (one pod covers the excess of "
        "n1); 1 now, 1 later; 1 of 2 goals are not met, for all of them at least 3 evictions are "
        "needed" in shown(PLAN, width=400)
    )


def test_people_see_what_priorities_cost() -> None:
    fields = {f: getattr(PLAN, f) for f in PLAN.__struct_fields__}
    assert "FewestEvictions would need 1" in shown(Plan(**fields | {"fewest_evictions": 1}), 400)
    for same in (None, 2):
        assert "FewestEvictions" not in shown(Plan(**fields | {"fewest_evictions": same}), 400)


def test_machines_see_both_bounds_and_what_priorities_cost() -> None:
    made = json.loads(as_json(PLAN))
    assert (made["lowerBound"], made["lowerBoundAll"], made["fewestEvictions"]) == (1, 3, None)
    assert made["priorityPolicy"] == "LowFirst"


def test_people_see_before_and_after() -> None:
    line = next(line for line in shown(PLAN).splitlines() if line.startswith(" n1 "))
    assert "95 %" in line
    assert "→" in line
    assert "78 %" in line
    assert "source" in line


def test_a_node_that_is_left_alone_says_why() -> None:
    text = shown(PLAN)
    assert "unknown: NoSample" in text
    assert any("n4" in line and "ControlPlane" in line for line in text.splitlines())


def test_refusals_are_folded_by_reason_the_commonest_first() -> None:
    lines = shown(PLAN).splitlines()
    folded = lines[lines.index(next(x for x in lines if "pods that stay" in x)) + 1 :]
    assert "5 TooYoung: it has been running for 43s, minPodAge is 2m" in folded[0]
    assert "and 2 more" in folded[0]
    assert "1 LocalStorage" in folded[1]


def test_goals_out_of_reach_say_the_smallest_reason() -> None:
    assert "n7 below 80 % CPU: every evictable pod of n7 is larger than any room" in shown(PLAN)


def test_an_empty_plan_says_so() -> None:
    assert "nothing to do" in shown(NOTHING)


def test_an_empty_plan_with_goals_does_not_claim_that_all_is_well() -> None:
    stuck = Plan(**{f: getattr(NOTHING, f) for f in NOTHING.__struct_fields__} | {"goals": ("g",)})
    assert "nothing to do" not in shown(stuck)


def test_what_could_not_be_decided_is_not_called_fine() -> None:
    resting = {f: getattr(NOTHING, f) for f in NOTHING.__struct_fields__}
    text = shown(Plan(**resting | {"notes": ("LoadBalancing rests: 0 of 3 nodes are known",)}))
    assert "nothing to do" not in text
    assert "LoadBalancing rests" in text


def test_asides_do_not_stand_for_a_reason() -> None:
    text = shown(NOTHING, asides=("Judged by the defaults.",))
    assert "nothing to do" in text
    assert "Judged by the defaults." in text


def test_a_narrow_terminal_loses_the_bars_and_not_the_table() -> None:
    assert "█" in shown(PLAN, 200)
    lines = shown(PLAN, 64).splitlines()
    assert " n1     95 % →  78 %        20 %                  source" in lines
    assert all(len(line) <= 64 for line in lines)


def test_of_many_nodes_those_that_change_are_shown() -> None:
    crowd = tuple(node(f"idle-{i:03d}", 90.0, 90.0) for i in range(60))
    changed = node("zz-last", 1.0, 9.0, "target")
    fields = {f: getattr(PLAN, f) for f in PLAN.__struct_fields__}
    text = shown(Plan(**fields | {"nodes": (*crowd, changed)}))
    assert "zz-last" in text
    assert "31 more nodes do not change" in text
