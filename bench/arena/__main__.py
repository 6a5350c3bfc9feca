# SPDX-License-Identifier: Apache-2.0
"""Evenkeel and descheduler on the same real cluster, one after the other, side by side.

A real control plane with twenty kwok nodes, whose pods have the usage of the scenario and are
measured by metrics-server every ten seconds. First both programs of Evenkeel run, with
kube-scheduler and the shipped configuration; then everything is created again, each pod on the
same node, and descheduler runs with kube-scheduler without an extender. With `--trimaran` it
runs once more, with a load-aware scheduler (`bench.trimaran`). *Bound* is the number of
evictions that every plan needs; *repeated* are evictions of pods that replaced an evicted one;
*level after* is when the goal was reached and kept. With `--strategies ceilings` the goal is
no node above 80 %, with `default` also at most 20 points between any two.

    python -m bench.arena [--scenario NAME] [--seeds 1,2,3] [--strategies ceilings|default]
                          [--intervals quick|shipped] [--trimaran] [--minutes N] [--json]
                          [--results FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from bench import descheduler, trimaran
from bench.arena.contest import (
    PACES,
    Round,
    our_setup,
    ours,
    peer,
    peer_setup,
    placed_setup,
)
from bench.arena.figures import THRESHOLD, Figures, Goal
from bench.arena.view import print_sums, show
from bench.stands.cluster import Cluster
from controlplane.cluster import ClusterOptions, ControlPlane, up
from controlplane.guardian import Guardian

SCENARIOS = ("hot-spots", "requests-mislead")
GOALS = {"ceilings": Goal(), "default": Goal(THRESHOLD)}


class Binaries(NamedTuple):
    """The programs to compare with."""

    descheduler: Path
    trimaran: Path | None


async def run(
    plane: ControlPlane,
    binaries: Binaries,
    rounds: Sequence[Round],
    folder: Path,
    results: list[Figures],
) -> None:
    """Run all on each scenario, from the same initial state."""
    for given in rounds:
        given.report(f"{given.scenario}, seed {given.seed}")
        async with _fresh(plane, folder) as cluster:
            mine, my_places = await ours(cluster, folder, given)
        results.append(mine)
        for placer in _placers(plane, binaries, folder):
            async with _fresh(plane, folder) as cluster:
                found = await peer(cluster, binaries.descheduler, given, mine.bound, placer)
            if my_places != found[1]:
                raise SystemExit("invalid: the initial placement differs between the contestants")
            results.append(found[0])


def _placers(
    plane: ControlPlane, binaries: Binaries, folder: Path
) -> Iterator[AbstractContextManager[None]]:
    """Yield what places pods beside descheduler: kube-scheduler, and Trimaran if asked for."""
    yield nullcontext()
    if binaries.trimaran is not None:
        yield trimaran.scheduler(binaries.trimaran, plane.kubeconfig, folder)


@asynccontextmanager
async def _fresh(plane: ControlPlane, folder: Path) -> AsyncIterator[Cluster]:
    """Provide an empty cluster, and empty it afterwards."""
    cluster = Cluster(plane, folder)
    await cluster.open()
    try:
        yield cluster
    finally:
        await cluster.clear()


def main() -> None:
    options = _options()
    # Stop everything on SIGINT, even where a shell started us with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    other = trimaran.build() if options.trimaran else None
    binaries, started = Binaries(descheduler.build(), other), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-arena-"))
    guardian, results = Guardian(folder / "cp"), list[Figures]()
    try:
        _report("starting a control plane")
        plane = up(ClusterOptions(folder / "cp"), lambda line: None)
        asyncio.run(run(plane, binaries, _rounds(options), folder, results))
    except KeyboardInterrupt:
        _report("interrupted; results so far:")
        sys.exit(130)
    finally:
        guardian.dismiss()
        shutil.rmtree(folder, ignore_errors=True)
        if results:
            if options.results:
                _add_to(options.results, results)
            _print(results, options, time.monotonic() - started)


def _print(results: Sequence[Figures], options: argparse.Namespace, seconds: float) -> None:
    pace = PACES[options.intervals]
    setup = {"evenkeel": our_setup(pace), "descheduler": peer_setup(pace)}
    if options.trimaran:
        setup["trimaran"] = placed_setup()
    if options.json:
        found = [each.as_json() for each in results]
        print(json.dumps({"strategies": options.strategies, "configured": setup, "results": found}))
        return
    show(results, f"Strategies of Evenkeel: {options.strategies}")
    print("\n".join(setup.values()))
    print(f"{seconds:.0f} s in all")


def _add_to(path: Path, results: Sequence[Figures]) -> None:
    """Add results to a file of JSON lines, and print the sums of all that are in it."""
    with path.open("a") as file:
        file.writelines(json.dumps(each.as_json()) + "\n" for each in results)
    print_sums([json.loads(line) for line in path.read_text().splitlines()])


def _rounds(options: argparse.Namespace) -> list[Round]:
    goal, seconds = GOALS[options.strategies], options.minutes * 60
    chosen = [options.scenario] if options.scenario else SCENARIOS
    pace = PACES[options.intervals]
    pairs = [(name, seed) for name in chosen for seed in options.seeds]
    return [Round(name, seed, goal, seconds, _report, pace) for name, seed in pairs]


def _report(line: str) -> None:
    print(f"· {line}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.arena", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--scenario", choices=SCENARIOS, help="run only this scenario (default: both)"
    )
    parser.add_argument(
        "--seeds",
        metavar="S,…",
        type=_numbers,
        default=[1],
        help="seeds, one round each, for example 1,2,3 (default: 1)",
    )
    parser.add_argument(
        "--strategies",
        choices=GOALS,
        default="ceilings",
        help="the goal, see above (default: %(default)s)",
    )
    parser.add_argument(
        "--intervals",
        choices=PACES,
        default="quick",
        help="how often both work: often, or as they are shipped (default: %(default)s)",
    )
    parser.add_argument(
        "--trimaran", action="store_true", help="also descheduler with a load-aware scheduler"
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        default=4.0,
        help="maximum time of each contestant in minutes (default: %(default)g)",
    )
    parser.add_argument(
        "--results",
        metavar="FILE",
        type=Path,
        help="add the results to this file, and print the sums of all that are in it",
    )
    parser.add_argument("--json", action="store_true", help="print the results as one JSON line")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
