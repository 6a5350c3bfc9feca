# SPDX-License-Identifier: Apache-2.0
"""The zoo: ordinary clusters, the program's plans, and the optimum of an exact judge.

    python -m bench.zoo [FAMILY ...] [--seeds 10] [--first 1] [--seconds 60] [--json FILE]
                        [--read FILE ...] [--page docs/results.md]

Prints for each family how many clusters are solvable, how many the program solves, its
evictions beside the fewest (proven, or the fewest known), and CPU time. The ratio is taken over
solved clusters only. Clusters whose solutions of the judge cannot be put in an order of moves
within the transient ceiling are order-blocked, and counted apart.

`--read` takes results that `--json` has written instead of making plans; `--page` puts the table
into a page, between its two markers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.zoo.families import FAMILIES, drawn_cluster
from bench.zoo.judge import SECONDS, Verdict, judge
from bench.zoo.model import Model
from bench.zoo.program import Planned, planned
from bench.zoo.replay import Replay, Step


@dataclass(frozen=True, slots=True)
class Result:
    """One cluster: what the program planned, and what the judge says."""

    family: str
    seed: int
    solvable: bool | None
    order_blocked: bool
    fewest: int | None
    """Evictions, proven or the fewest known."""
    bound: int
    evictions: int
    unmet: tuple[str, ...]
    """Goals that the end of the plan does not meet, by the judge's own count."""
    broken: tuple[str, ...]
    """Rules that the plan breaks on its way."""
    cpu_s: float
    """Of the program: start, reading, plan."""
    judge_s: float

    @property
    def solved(self) -> bool:
        return not self.unmet and not self.broken


async def compared(family: str, seed: int, *, seconds: float = SECONDS) -> Result:
    """Plan and judge one cluster."""
    cluster = drawn_cluster(family, seed)
    found = await planned(cluster)
    return await asyncio.to_thread(judged, family, seed, Model(cluster), found, seconds)


def judged(
    family: str, seed: int, model: Model, found: Planned, seconds: float = SECONDS
) -> Result:
    """Compare a plan with the optimum."""
    before = time.process_time()
    verdict = judge(model, seconds=seconds)
    judge_s = time.process_time() - before
    broken, unmet = replayed(model, found)
    if not broken and not unmet and verdict.opened is not None:
        broken += too_important(model, found, verdict.opened)
        broken += needless_last_resort(model, found, verdict)
    solved = not broken and not unmet
    known = [n for n in (verdict.evictions, len(found.moves) if solved else None) if n is not None]
    return Result(
        family=family,
        seed=seed,
        solvable=True if solved else verdict.solvable,
        order_blocked=verdict.order_blocked,
        # A plan may end exactly at a limit, from which the judge keeps a safe distance.
        fewest=min(known, default=None),
        bound=verdict.bound,
        evictions=len(found.moves),
        unmet=tuple(unmet),
        broken=tuple(broken),
        cpu_s=found.cpu_s,
        judge_s=judge_s,
    )


def too_important(model: Model, found: Planned, fewest: int) -> list[str]:
    """Return a complaint if pods move although pods of lower priority would be enough."""
    opened = model.opened(steps_of(model, found)) if model.low_first else 0
    return [f"opens {opened} priorities, and {fewest} are enough"] if opened > fewest else []


def needless_last_resort(model: Model, found: Planned, verdict: Verdict) -> list[str]:
    """Return pods that a drain brings where they should not go, though there is another way."""
    replay, complaints = Replay(model), []
    for step in steps_of(model, found):
        if replay.objections(step) and not verdict.last_resort:
            complaints.append(f"{model.pods[step[0]].name}: the last resort is not needed")
        replay.move(step)
    return complaints


def steps_of(model: Model, found: Planned) -> list[Step]:
    """Return the moves of a plan as pods and rows."""
    numbers = {pod.name: number for number, pod in enumerate(model.pods)}
    return [(numbers[move["pod"].split("/")[1]], model.row[move["target"]]) for move in found.moves]


def replayed(model: Model, found: Planned) -> tuple[list[str], list[str]]:
    """Carry out a plan; return the rules that it breaks and the goals that it misses."""
    replay, broken = Replay(model), []
    for move, step in zip(found.moves, steps_of(model, found), strict=True):
        last_resort = bool(model.emptied[model.row[move["source"]]])
        objections = replay.objections(step, last_resort=last_resort)
        broken += [f"{move['pod']} to {move['target']}: {why}" for why in objections]
        replay.move(step)
    return broken, replay.unmet(model.hot)


def table(results: Sequence[Result]) -> list[str]:
    """Return the table, one line per family."""
    lines = [
        "| family | clusters | solvable | order-blocked | solved | unmet goals | evictions "
        "| fewest | ratio | worst | CPU s | judge s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    families = dict.fromkeys(result.family for result in results)
    return lines + [_line(f, [r for r in results if r.family == f]) for f in families]


def _line(family: str, results: Sequence[Result]) -> str:
    solvable = [r for r in results if r.solvable]
    solved = [r for r in solvable if r.solved]
    known = [r for r in solved if r.fewest is not None]
    evictions, fewest = sum(r.evictions for r in known), sum(r.fewest or 0 for r in known)
    worst = max((r.evictions - (r.fewest or 0) for r in known), default=0)
    ratio = f"{evictions / fewest:.3f}" if fewest else "–"
    blocked = sum(r.order_blocked and not r.solved for r in results)
    unmet = sum(len(r.unmet) for r in solvable)
    cells = (
        f"{family} | {len(results)} | {len(solvable)} | {blocked} | {len(solved)} | {unmet}"
        f" | {evictions} | {fewest} | {ratio} | {worst:+d}"
        f" | {median(r.cpu_s for r in results):.1f} | {median(r.judge_s for r in results):.1f}"
    )
    return f"| {cells} |"


BEGIN, END = "<!-- zoo: begin -->", "<!-- zoo: end -->"


def put_into(page: str, lines: Sequence[str]) -> str:
    """Return a page with the table between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the page has no markers {BEGIN} and {END}")
    return "\n".join((before + begin, "", *lines, "", end + after))


def read_results(files: Sequence[str]) -> list[Result]:
    """Return the results in files, family by family in the order of the zoo."""
    found = [Result(**each) for file in files for each in json.loads(Path(file).read_text())]
    order = list(FAMILIES)
    return sorted(found, key=lambda result: (order.index(result.family), result.seed))


def totals(results: Sequence[Result]) -> str:
    """Return one sentence about all of them."""
    solvable = [r for r in results if r.solvable]
    solved = [r for r in solvable if r.solved and r.fewest is not None]
    evictions, fewest = sum(r.evictions for r in solved), sum(r.fewest or 0 for r in solved)
    most = max((r.evictions - (r.fewest or 0) for r in solved), default=0)
    return (
        f"{len(solved)} of {len(solvable)} solvable clusters are solved, with {evictions} "
        f"evictions where {fewest} are the fewest known; at most {most} more on one cluster."
    )


def _told(result: Result) -> str:
    ratio = f"{result.evictions} evictions, fewest {result.fewest} (proven {result.bound})"
    state = "solved" if result.solved else "NOT solved" if result.solvable else "unsolvable"
    blocked = ", order-blocked" if result.order_blocked else ""
    why = "; ".join((*result.broken, *result.unmet)[:2])
    return f"{result.family} {result.seed}: {state}{blocked}, {ratio}{'  ' + why if why else ''}"


async def _results(arguments: argparse.Namespace) -> list[Result]:
    results = []
    for family in arguments.family or FAMILIES:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            result = await compared(family, seed, seconds=arguments.seconds)
            results.append(result)
            print(_told(result), file=sys.stderr, flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", nargs="*", choices=[*FAMILIES, []], help="all by default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the judge, each")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--read", nargs="+", help="take the results from these files")
    parser.add_argument("--page", help="put the table into this page")
    arguments = parser.parse_args()
    results = read_results(arguments.read) if arguments.read else asyncio.run(_results(arguments))
    lines = [*table(results), "", totals(results)]
    print("\n".join(lines))
    if arguments.page:
        page = Path(arguments.page)
        page.write_text(put_into(page.read_text(), lines))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([asdict(result) for result in results]))


if __name__ == "__main__":
    main()
