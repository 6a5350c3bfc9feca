# SPDX-License-Identifier: Apache-2.0
"""`evenkeel simulate`: what another configuration would do, beside the present one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import click
from rich.console import Group, RenderableType
from rich.text import Text

from common.config import RebalancerConfiguration, load_config
from common.grid import Grid
from common.load import Belief
from common.visible import visible
from evenkeel.errors import UsageError
from evenkeel.output import Output, emit
from evenkeel.session import reading
from evenkeel.shell import SPAN, Call, command
from evenkeel.simulation.playing import Moment, Play, play
from rebalancer.inspection.words import duration, shown_percent

START_S = 60.0
"""How long to wait at most until all pods of a scenario run; some may have no room."""
_SOON_S = 0.1
_SHOWN = 12
"""Moments that are shown; with -o wide all."""


@click.command("simulate", short_help="Play the loop in memory with another configuration.")
@click.option("--config", "file", metavar="F", help="The RebalancerConfiguration to try.")
@click.option("--scenario", metavar="S", help="A scenario of the simulator, or a file.")
@click.option("--from-cluster", is_flag=True, help="A read-only snapshot of your cluster.")
@click.option("--seed", default=0, show_default=True, help="Of the scenario.")
@click.option(
    "--for", "for_s", type=SPAN, default="30m", show_default=True, help="How long to play."
)
@command
async def simulate_command(
    call: Call,
    *,
    file: str | None,
    scenario: str | None,
    from_cluster: bool,
    seed: int,
    for_s: float,
) -> None:
    """Play the loop in memory: evictions, hot nodes and spread over time.

    Nothing is changed in any cluster. Beside the configuration in the file, the present one is
    played: the installed one, or the defaults.
    """
    if (scenario is None) is not from_cluster:
        raise UsageError("say what to play on: --scenario S or --from-cluster")
    wanted = load_config(file, RebalancerConfiguration) if file is not None else None
    belief, present, named, now_s = await _read(call, scenario, seed)
    tries = [(f"present ({named})", present)]
    tries += [(f"file {file}", wanted)] if wanted is not None else []
    with call.progress.waiting("Playing the loop …"):
        plays = [
            await asyncio.to_thread(play, belief, config, now_s=now_s, for_s=for_s, name=name)
            for name, config in tries
        ]
    emit("Simulation", {"plays": plays}, call.output, lambda: _page(plays, call.output))


class _Played(NamedTuple):
    """What to play on, and when it begins."""

    belief: Belief
    config: RebalancerConfiguration
    named: str
    now_s: float


async def _read(call: Call, scenario: str | None, seed: int) -> _Played:
    """Return the cluster to play on, and the present configuration."""
    if scenario is not None:
        return await _stage(call, scenario, seed)
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        belief, there = await session.look(), session.installation
        return _Played(belief, there.config, there.config_from, call.clock.now())


async def _stage(call: Call, scenario: str, seed: int) -> _Played:
    from evenkeel.simulation.scenarios import LATER_S, staged

    with call.progress.waiting(f"Staging {scenario} …"):
        async with staged(scenario, seed=seed, clock=call.clock) as stage:
            target, left_s = (
                replace(call.target, kubeconfig=stage.kubeconfig, context=None),
                START_S,
            )
            while left_s > 0 and not stage.runs():
                await call.clock.sleep(_SOON_S)
                left_s -= _SOON_S
            async with reading(
                target, clock=call.clock, progress=call.progress, usage=False
            ) as session:
                there, now_s = session.installation, call.clock.now() + LATER_S
                snapshot = (await session.look()).snapshot
                belief = stage.believed(snapshot, there.config, now_s)
                return _Played(belief, there.config, there.config_from, now_s)


def _page(plays: Sequence[Play], output: Output) -> RenderableType:
    parts: list[RenderableType] = [_summary(plays)]
    for found in plays:
        parts += [
            Text(),
            Text(visible(found.configuration), style="bold"),
            _timeline(found, output),
        ]
        parts += [Text(f" not met: {visible(each)}", style="yellow") for each in found.unmet]
    return Group(*parts)


def _summary(plays: Sequence[Play]) -> Grid:
    grid = Grid(
        ("configuration", "evictions", "hot nodes", "cpu spread", "memory spread", "level after"),
        right=("evictions",),
    )
    for found in plays:
        first, last = found.moments[0], found.last
        settled = next(m for m in found.moments if m.evictions == last.evictions)
        after = duration(settled.after_s) if found.ended else "not within the time"
        grid.add(
            visible(found.configuration),
            str(last.evictions),
            f"{first.hot} → {last.hot}",
            f"{_points(first.cpu_spread)} → {_points(last.cpu_spread)}",
            f"{_points(first.memory_spread)} → {_points(last.memory_spread)}",
            after,
        )
    return grid


def _points(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"


def _timeline(found: Play, output: Output) -> Grid:
    grid = Grid(
        ("after", "evictions", "hot nodes", "cpu spread", "highest cpu"),
        right=("evictions", "hot nodes"),
    )
    changes = [
        m for n, m in enumerate(found.moments) if n == 0 or _differs(found.moments[n - 1], m)
    ]
    for moment in changes if output.wide else changes[:_SHOWN]:
        grid.add(
            duration(moment.after_s),
            str(moment.evictions),
            str(moment.hot),
            _points(moment.cpu_spread),
            shown_percent(moment.highest_cpu),
        )
    return grid


def _differs(before: Moment, after: Moment) -> bool:
    return (before.evictions, before.hot) != (after.evictions, after.hot)
