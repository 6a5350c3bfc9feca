"""What Leases say: who lives, who knows, who asks; judged by when we heard of it."""

from __future__ import annotations

from typing import Any

import pytest

from common.config import load_settings_hash
from rebalancer.extenders import GUIDANCE, Extenders, ExtenderView, Guidance, unsteered
from tests.support.clock import FakeClock
from tests.support.steering_world import (
    SCHEDULER,
    SteeringCase,
    config_of,
    lease_record_of,
    load_cases,
)

CASES = load_cases("extenders")
VERSION = 100


async def played(row: dict[str, Any]) -> tuple[ExtenderView, float]:
    """Return the view after the row's steps, and the time it is then."""
    clock = FakeClock()
    extenders = Extenders(clock, namespace="evenkeel")
    known: dict[str, Any] = {}
    for step in row["steps"]:
        if "wait" in step:
            await clock.advance(step["wait"])
        elif "gone" in step:
            extenders.told(known.pop(step["gone"]), None)
        else:
            given = {"lease": step["name"]} if "name" in step else {}
            given |= {k: v for k, v in step.items() if k not in ("lease", "name")}
            new = lease_record_of(step["lease"], given, now_s=clock.now())
            extenders.told(known.get(step["lease"]), new)
            known[step["lease"]] = new
    return extenders.view(), clock.now()


def said(refusal: Any) -> dict[str, str]:
    assert refusal is None or not refusal.for_good
    return {} if refusal is None else {refusal.name: refusal.words}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_the_leases_say(case: SteeringCase) -> None:
    row = case.row
    view, now_s = await played(row)
    assert [replica.name for replica in view.live] == row["live"]
    assert said(view.acknowledged(VERSION)) == row.get("not_acknowledged", {})
    assert view.share(SCHEDULER) == row.get("share", 1.0)
    if "asked" in row:
        asked_s = view.guided(SCHEDULER)
        assert asked_s == (None if row["asked"] == "never" else pytest.approx(now_s - row["asked"]))
    assert view.differing(load_settings_hash(config_of({}))) == tuple(row.get("differing", ()))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_whether_a_replacement_would_be_steered(case: SteeringCase) -> None:
    view, _ = await played(case.row)
    allow = case.row.get("allow_sampling", False)
    asked = Guidance(view=view, scheduler=SCHEDULER, allow_sampling=allow)
    assert said(unsteered(asked)) == case.row.get("unsteered", {})


async def test_every_rule_of_guidance_refuses_something() -> None:
    views = [(await played(case.row))[0] for case in CASES]
    asked = [Guidance(view=v, scheduler=SCHEDULER, allow_sampling=False) for v in views]
    assert all(any(rule(each) for each in asked) for rule in GUIDANCE)


@pytest.mark.parametrize(
    ("calls", "answer"),
    [
        ([{SCHEDULER: {"ago": 5}}], True),
        ([{SCHEDULER: {"ago": 10}}], True),
        ([{SCHEDULER: {"ago": 11}}], False),
        ([{}], False),
        ([{"volcano": {"ago": 5}}], False),
        ([{}, {SCHEDULER: {"ago": 5}}], True),
        ([], False),
    ],
    ids=["asked", "same-moment", "before", "never", "another", "one-of-two", "nobody-lives"],
)
async def test_whether_a_scheduler_asked_in_the_last_ten_seconds(
    calls: list[dict[str, Any]], answer: bool
) -> None:
    clock = FakeClock()
    extenders = Extenders(clock)
    for number, each in enumerate(calls):
        lease = lease_record_of(f"e{number}", {"calls": each}, now_s=clock.now())
        extenders.told(None, lease)
    assert extenders.view().asked_since(SCHEDULER, clock.now() - 10.0) is answer


async def test_a_view_does_not_change_under_its_reader() -> None:
    clock = FakeClock()
    extenders = Extenders(clock)
    lease = lease_record_of("a", {}, now_s=clock.now())
    extenders.told(None, lease)
    view = extenders.view()
    extenders.told(lease, None)
    assert view.acknowledged(VERSION) is None
    assert extenders.view() == ExtenderView()
