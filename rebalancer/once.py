# SPDX-License-Identifier: Apache-2.0
"""One plan from the samples at hand, for people or for machines."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import msgspec

from common.cli import StartError
from common.clock import Clock, within
from common.config import RebalancerConfiguration
from common.observer import Observer
from common.terminal import print_out
from rebalancer.decision import Decider
from rebalancer.finished_pods import NONE_FINISHED, Finished
from rebalancer.planner import Plan
from rebalancer.report import as_json, render

SYNC_S: Final = 60.0
SAMPLE_S: Final = 45.0
"""metrics-server needs up to half a minute for its first sample of a new cluster."""


async def plan_once(
    config: RebalancerConfiguration,
    observer: Observer,
    clock: Clock,
    finished: Finished = NONE_FINISHED,
    *,
    all_pods: bool = False,
) -> Plan:
    """Return a plan without waiting for consecutive observations.

    Where usage cannot be read the plan notes it; nodes can be drained all the same.
    """
    trouble = await _wait_for_state(observer, clock)
    belief = await observer.look()
    decider = Decider(config, all_pods=all_pods)
    decision = await asyncio.to_thread(decider.decide, belief, clock.now(), finished, at_once=True)
    plan = decision.plan
    notes = plan.notes if trouble is None else (*plan.notes, trouble)
    return msgspec.structs.replace(plan, notes=notes)


def show(plan: Plan, output: str, *, all_pods: bool = False) -> None:
    """Print a plan on stdout."""
    if output == "json":
        sys.stdout.write(as_json(plan) + "\n")
        return
    print_out(render(plan, all_pods=all_pods))


async def _wait_for_state(observer: Observer, clock: Clock) -> str | None:
    """Wait until the cluster is read; return what is wrong if its usage is not."""
    try:
        await within(clock, SYNC_S, observer.reader.wait_synced())
    except TimeoutError:
        why = observer.reader.why_not_synced()
        raise StartError(f"the cluster was not read within {SYNC_S:g} s: {why}") from None
    try:
        await within(clock, SAMPLE_S, observer.wait_sampled())
    except TimeoutError:
        return f"{observer.why_not_ready()}; nothing is moved for load"
    return None
