"""Evenkeel and descheduler on the same real cluster, one after the other, side by side.

A real control plane with twenty nodes of kwok's, whose pods use what the scenario says and
are measured by metrics-server every ten seconds. First both programs of Evenkeel work, beside
kube-scheduler with the shipped configuration; then everything is made anew, each pod at the
same place, and descheduler works beside kube-scheduler without an extender. *Bound* is how
few evictions any plan needs; *repeated* are evictions of pods that replaced an evicted one;
*level after* is when the goal was reached for good. With `--strategies ceilings` the goal is
no node above 80 %, with `default` also at most 20 points between any two.

    python -m bench.arena [--scenario NAME] [--seeds 1,2,3] [--strategies ceilings|default]
                          [--minutes N] [--json]
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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench import descheduler
from bench.arena.contest import OUR_WORDS, PEER_WORDS, Round, ours, peer
from bench.arena.figures import THRESHOLD, Figures, Goal
from bench.arena.view import show
from controlplane.cluster import ControlPlane, Wanted, up
from controlplane.guardian import Guardian
from tests.support.cluster import Cluster

SCENARIOS = ("hot-spots", "requests-mislead")
GOALS = {"ceilings": Goal(), "default": Goal(THRESHOLD)}


async def run(
    plane: ControlPlane,
    binary: Path,
    rounds: Sequence[Round],
    folder: Path,
    results: list[Figures],
) -> None:
    """Let both work on each scenario; the start must have been the same for both."""
    for given in rounds:
        given.say(f"{given.scenario}, seed {given.seed}")
        async with _fresh(plane, folder) as cluster:
            mine, my_places = await ours(cluster, folder, given)
        async with _fresh(plane, folder) as cluster:
            theirs, their_places = await peer(cluster, binary, given, mine.bound)
        if my_places != their_places:
            raise SystemExit("void: the pods were not at the same places for both")
        results += [mine, theirs]


@asynccontextmanager
async def _fresh(plane: ControlPlane, folder: Path) -> AsyncIterator[Cluster]:
    """Give an empty cluster, and empty it again."""
    cluster = Cluster(plane, folder)
    await cluster.open()
    try:
        yield cluster
    finally:
        await cluster.clear()


def main() -> None:
    options = _options()
    # All that we start ends with us, also where a shell has us ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    binary, started = descheduler.build(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-arena-"))
    guardian, results = Guardian(folder / "cp"), list[Figures]()
    try:
        _say("starting a control plane")
        plane = up(Wanted(folder / "cp"), lambda line: None)
        asyncio.run(run(plane, binary, _rounds(options), folder, results))
    except KeyboardInterrupt:
        _say("interrupted; what is known so far:")
        sys.exit(130)
    finally:
        guardian.dismiss()
        shutil.rmtree(folder, ignore_errors=True)
        if results:
            _tell(results, options, time.monotonic() - started)


def _tell(results: Sequence[Figures], options: argparse.Namespace, seconds: float) -> None:
    words = {"evenkeel": OUR_WORDS, "descheduler": PEER_WORDS}
    if options.json:
        found = [each.as_json() for each in results]
        print(json.dumps({"strategies": options.strategies, "configured": words, "results": found}))
        return
    show(results, f"Strategies of Evenkeel: {options.strategies}")
    print("\n".join(words.values()))
    print(f"{seconds:.0f} s in all")


def _rounds(options: argparse.Namespace) -> list[Round]:
    goal, seconds = GOALS[options.strategies], options.minutes * 60
    chosen = [options.scenario] if options.scenario else SCENARIOS
    return [Round(name, seed, goal, seconds, _say) for name in chosen for seed in options.seeds]


def _say(line: str) -> None:
    print(f"· {line}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.arena", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--scenario", choices=SCENARIOS, help="only this one (default: both)")
    parser.add_argument(
        "--seeds",
        metavar="S,…",
        type=_numbers,
        default=[1],
        help="one round for each, for example 1,2,3 (default: 1)",
    )
    parser.add_argument(
        "--strategies",
        choices=GOALS,
        default="ceilings",
        help="what is to be reached, see above (default: %(default)s)",
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        default=4.0,
        help="the longest a contestant is watched (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line of figures")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
