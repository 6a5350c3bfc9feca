# SPDX-License-Identifier: Apache-2.0
"""What Leases say: who lives, who knows, who asks; judged by when we heard of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from common.cluster.storage import LeaseRecord
from common.config import load_settings_hash
from rebalancer.pacing.extenders import (
    GUIDANCE,
    Asked,
    Binding,
    Extenders,
    ExtenderView,
    Guidance,
    unsteered,
)
from tests.support.clock import FakeClock
from tests.support.worlds.pacing import (
    SCHEDULER,
    PacingCase,
    config_of,
    lease_record_of,
    load_cases,
    record_of,
)

CASES = load_cases("extenders")
VERSION = 100


async def played(row: dict[str, Any]) -> tuple[ExtenderView, float]:
    """Return the view after the row's steps, and the time it is then."""
    clock = FakeClock()
    extenders = Extenders(clock)
    known: dict[str, Any] = {}
    for step in row["steps"]:
        if "wait" in step:
            await clock.advance(step["wait"])
        elif "migration" in step:
            made = record_of({"pod": f"pod-{step['migration']}"})
            news = replace(made, resource_version=step["migration"])
            extenders.on_migration(None, news)
        elif "gone" in step:
            extenders.on_lease(known.pop(step["gone"]), None)
        else:
            given = {"lease": step["name"]} if "name" in step else {}
            given |= {k: v for k, v in step.items() if k not in ("lease", "name")}
            new = lease_record_of(step["lease"], given, now_s=clock.now())
            extenders.on_lease(known.get(step["lease"]), new)
            known[step["lease"]] = new
    return extenders.view(), clock.now()


def said(refusal: Any) -> dict[str, str]:
    assert refusal is None or refusal.for_now()
    return {} if refusal is None else {refusal.name: refusal.message}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_the_leases_say(case: PacingCase) -> None:
    row = case.row
    view, now_s = await played(row)
    assert [replica.name for replica in view.live] == row["live"]
    assert [replica.name for replica in view.deaf] == row.get("deaf", [])
    assert said(view.acknowledged(VERSION)) == row.get("not_acknowledged", {})
    assert view.share(SCHEDULER) == row.get("share", 1.0)
    if "asked" in row:
        asked_s = view.guided(SCHEDULER)
        assert asked_s == (None if row["asked"] == "never" else pytest.approx(now_s - row["asked"]))
    assert view.differing(load_settings_hash(config_of({}))) == tuple(row.get("differing", ()))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_whether_a_replacement_would_be_steered(case: PacingCase) -> None:
    view, now_s = await played(case.row)
    allow = case.row.get("allow_sampling", False)
    asked = Guidance(view=view, scheduler=SCHEDULER, allow_sampling=allow, now_s=now_s)
    assert said(unsteered(asked)) == case.row.get("unsteered", {})


async def test_every_rule_of_guidance_refuses_something() -> None:
    views = [await played(case.row) for case in CASES]
    asked = [
        Guidance(view=view, scheduler=SCHEDULER, allow_sampling=False, now_s=now_s)
        for view, now_s in views
    ]
    assert all(any(rule(each) for each in asked) for rule in GUIDANCE)


CREATED_S, BOUND_S, SKEW_S = 2000.0, 2010.0, 30.0
EVIDENCE: dict[str, tuple[list[dict[str, Any]], Asked]] = {
    "asked": ([{"made": 1000, "told": 2012, "last": 2005}], Asked.YES),
    "asked, and silent since": ([{"made": 1000, "told": 2006, "last": 2005}], Asked.YES),
    "asked, by clocks that differ": ([{"made": 1000, "told": 1990, "last": 1975}], Asked.YES),
    "another of two was asked": (
        [{"made": 1000, "told": 2050}, {"made": 1000, "told": 2012, "last": 2005}],
        Asked.YES,
    ),
    "asked, and gone": ([{"made": 1000, "told": 2006, "last": 2005, "gone": True}], Asked.YES),
    "not asked": ([{"made": 1000, "told": 2041, "last": 1900}], Asked.NO),
    "never asked": ([{"made": 1000, "told": 2041}], Asked.NO),
    "another scheduler asked": ([{"made": 1000, "told": 2041, "by": "volcano"}], Asked.NO),
    "it has not spoken since": ([{"made": 1000, "told": 2009}], Asked.PENDING),
    "its clock may be ahead": ([{"made": 1000, "told": 2039}], Asked.PENDING),
    "one of two has not spoken since": (
        [{"made": 1000, "told": 2050}, {"made": 1000, "told": 2009}],
        Asked.PENDING,
    ),
    "the silent one died long before": (
        [{"made": 1000, "told": 2050}, {"made": 1000, "told": 1400}],
        Asked.NO,
    ),
    "it came after the pod": ([{"made": 2001, "told": 2050}], Asked.UNKNOWN),
    "the one that was there went silently": (
        [{"made": 1000, "told": 2009, "gone": True}, {"made": 1000, "told": 2050}],
        Asked.UNKNOWN,
    ),
    "a new one took over from the one that was there": (
        [{"made": 1000, "told": 2009, "gone": True}, {"made": 2001, "told": 2050}],
        Asked.UNKNOWN,
    ),
    "no extender was there": ([], Asked.UNKNOWN),
}


@pytest.mark.parametrize("case", EVIDENCE)
async def test_whether_an_extender_was_asked_about_a_pod(case: str) -> None:
    given, answer = EVIDENCE[case]
    extenders = Extenders(FakeClock(now=2060.0))
    for number, each in enumerate(given):
        lease = _lease(f"e{number}", each)
        extenders.on_lease(None, lease)
        if each.get("gone"):
            extenders.on_lease(lease, None)
    binding = Binding(scheduler=SCHEDULER, created_s=CREATED_S, bound_s=BOUND_S, skew_s=SKEW_S)
    assert extenders.asked(binding) is answer


async def test_an_extender_that_can_renew_again_tells_what_it_was_asked() -> None:
    """It looked dead for a while, and its scheduler asked it all the same."""
    clock = FakeClock(now=2060.0)
    extenders = Extenders(clock)
    before = _lease("e", {"made": 1000, "told": 1995})
    extenders.on_lease(None, before)
    await clock.advance(60.0)
    binding = Binding(scheduler=SCHEDULER, created_s=CREATED_S, bound_s=BOUND_S, skew_s=SKEW_S)
    assert extenders.view().live == ()
    assert extenders.asked(binding) is Asked.PENDING
    extenders.on_lease(before, _lease("e", {"made": 1000, "told": 2115, "last": 2005}))
    assert extenders.asked(binding) is Asked.YES


async def test_who_is_gone_for_long_is_forgotten() -> None:
    clock = FakeClock(now=2010.0)
    extenders = Extenders(clock)
    for name, told in (("old", 2006), ("new", 9000)):
        lease = _lease(name, {"made": 1000, "told": told, "last": 2005})
        extenders.on_lease(None, lease)
        extenders.on_lease(lease, None)
        await clock.advance(7000.0)
    binding = Binding(scheduler=SCHEDULER, created_s=CREATED_S, bound_s=BOUND_S, skew_s=SKEW_S)
    assert extenders.asked(binding) is Asked.YES
    extenders.on_lease(_lease("third", {"made": 1, "told": 1}), None)
    assert extenders.asked(binding) is Asked.UNKNOWN


def _lease(name: str, given: dict[str, Any]) -> LeaseRecord:
    """Return a Lease: when it was made, and what it said when."""
    told_s, scheduler = float(given["told"]), given.get("by", SCHEDULER)
    last = given.get("last", told_s if "by" in given else None)
    calls = {} if last is None else {scheduler: {"ago": told_s - last}}
    found = lease_record_of(name, {"calls": calls}, now_s=told_s)
    return replace(found, created_s=float(given["made"]))


async def test_a_view_does_not_change_under_its_reader() -> None:
    clock = FakeClock()
    extenders = Extenders(clock)
    lease = lease_record_of("a", {}, now_s=clock.now())
    extenders.on_lease(None, lease)
    view = extenders.view()
    extenders.on_lease(lease, None)
    assert view.acknowledged(VERSION) is None
    assert extenders.view() == ExtenderView()
