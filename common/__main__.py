# SPDX-License-Identifier: Apache-2.0
"""`python -m common`: what Evenkeel believes about a cluster. Reads, never writes.

Shows every node's load as both programs see it, and why a node is not known. `--once`
prints that and ends; without it the cluster is read until a signal comes, with health and
metrics on the health port.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from math import isfinite

import msgspec
from rich.table import Table
from rich.text import Text

from common.cli import Announce, HealthPort, Options, Program, StartError, connected, main
from common.clock import Clock, within
from common.config import ExtenderConfiguration
from common.health import Health
from common.load import Belief, Difference, NodeLoad
from common.metrics import Metrics
from common.observer import Observer
from common.terminal import print_out
from common.visible import visible_json

_BAR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LookOptions(Options):
    """The flags that only this command has."""

    once: bool = False
    output: str = "text"
    wait: float = 60.0


async def run(
    config: ExtenderConfiguration, options: LookOptions, *, clock: Clock, announce: Announce
) -> None:
    """Read the cluster; with `--once` print what is believed of it and end."""
    metrics = Metrics("common")
    health = Health(metrics)
    async with (
        connected(config, options, clock=clock) as client,
        health.serving(options.bind_address, options.health_port) as address,
    ):
        # Asked first: a wrong address, certificate or token is said at once and plainly.
        await client.get("/version")
        observer = Observer(client, config, clock=clock, metrics=metrics)
        health.ready("cluster", observer.why_not_ready)
        if not options.once:
            announce(health=address)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(observer.run())
                if options.once:
                    await _print_once(observer, options, clock)
                    reading.cancel()
        finally:
            health.drain()


async def _print_once(observer: Observer, options: LookOptions, clock: Clock) -> None:
    try:
        await within(clock, options.wait, observer.wait_sampled())
    except TimeoutError:
        why = observer.why_not_ready()
        raise StartError(f"the cluster was not read within {options.wait:g} s: {why}") from None
    belief = await observer.look()
    if options.output == "json":
        sys.stdout.write(as_json(belief) + "\n")
    else:
        print_out(as_table(belief))


def as_json(belief: Belief) -> str:
    """Return the belief for machines."""
    nodes = [
        {
            "name": load.name,
            "cpuMilli": round(load.cpu_milli, 3),
            "memoryBytes": round(load.mem_bytes),
            "cpuPercent": _finite(load.cpu_percent),
            "memoryPercent": _finite(load.mem_percent),
            "overheadCpuMilli": round(load.overhead.cpu_milli, 3),
            "overheadMemoryBytes": round(load.overhead.mem_bytes),
            "settledCpuPercent": _finite(load.settled_cpu_percent),
            "settledMemoryPercent": _finite(load.settled_mem_percent),
            "pods": len(belief.snapshot.nodes[load.name].pods),
            "estimatedPods": load.estimated_pods,
            "differences": [_as_json(each) for each in load.differences],
            "unknown": load.why,
        }
        for load in _by_load(belief)
    ]
    told = msgspec.json.encode({"source": belief.source.asked, "nodes": nodes}).decode()
    return visible_json(told)


def _as_json(each: Difference) -> dict[str, object]:
    """Return one pod by which a node's load differs from its sample."""
    return {
        "pod": each.pod,
        "change": each.change,
        "cpuMilli": round(each.cpu_milli, 3),
        "memoryBytes": round(each.mem_bytes),
        "basis": each.basis.value,
    }


def as_table(belief: Belief) -> Table:
    """Return the belief for people: the most loaded node first."""
    table = Table(box=None, header_style="bold", caption=_caption(belief))
    for title in ("node", "cpu", "memory", "pods", "of them estimated", "unknown because"):
        table.add_column(title, justify="right" if title.startswith(("pods", "of")) else "left")
    for load in _by_load(belief):
        table.add_row(
            load.name,
            _bar(load.cpu_percent),
            _bar(load.mem_percent),
            str(len(belief.snapshot.nodes[load.name].pods)),
            str(load.estimated_pods) if load.estimated_pods else "",
            Text(load.why or "", style="yellow"),
        )
    return table


def _by_load(belief: Belief) -> list[NodeLoad]:
    def height(load: NodeLoad) -> float:
        return max((p for p in (load.cpu_percent, load.mem_percent) if isfinite(p)), default=-1.0)

    return sorted(belief.load.nodes.values(), key=lambda load: (-height(load), load.name))


def _caption(belief: Belief) -> str:
    known = len(belief.load.nodes) - belief.load.unknown
    found = f"{known} of {len(belief.load.nodes)} nodes known, usage from {belief.source.asked}"
    return f"{found} (no metrics: {belief.source.why})" if belief.source.without_metrics else found


def _bar(percent: float) -> Text:
    if not isfinite(percent):
        return Text("–", style="dim")
    filled = min(_BAR, round(percent / 100 * _BAR))
    style = "red" if percent >= 80 else "yellow" if percent >= 60 else "green"
    return Text(f"{percent:5.1f}% ") + Text("█" * filled, style=style)


def _finite(percent: float) -> float | None:
    return round(percent, 3) if isfinite(percent) else None


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--once", action="store_true", help="print the load of all nodes once, then exit"
    )
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="with --once: a table for people or JSON (default: %(default)s)",
    )
    parser.add_argument(
        "--wait",
        metavar="S",
        type=float,
        default=60.0,
        help="with --once: seconds to wait for the cluster (default: %(default)s)",
    )


PROGRAM = Program(
    name="common",
    summary="Show the load of a cluster's nodes as Evenkeel sees it. Read-only.",
    configuration=ExtenderConfiguration,
    options=LookOptions,
    health=HealthPort(0),
    run=run,
    add_flags=_flags,
)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
