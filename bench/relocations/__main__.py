# SPDX-License-Identifier: Apache-2.0
"""Plans of `Violations`, `Duplicates` and `PreferredNodes`, beside those of an exact judge.

    python -m bench.relocations [FAMILY ...] [--seeds 10] [--first 1]

Clusters are drawn from seeds. The running program plans for each (`--once --dry-run`), and its
moves are made one after the other on the drawn numbers: at every step requests and load fit, and
rules, immovable pods and shares of hosts and zones are kept. What is wrong is counted in pods:

- *Violations*: pods that their node does not fit, and pairs that have to be apart;
- *Duplicates*: replicas above the share of their host;
- *PreferredNodes*: weights of preferences, less what was gained of them.

Each cluster is planned twice, the second time as the moves leave it: *again* counts the pods that
move once more. The judge (HiGHS) reads the same numbers. It minimizes first what is left of that,
then the moves; solutions that cannot be carried out one move after the other do not count.
*moves* and *fewest* are those of the clusters where the plan repairs the most.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from dataclasses import dataclass

from bench.relocations.families import FAMILIES, drawn_for
from bench.relocations.judge import Result, judged
from bench.relocations.model import Drawn, Move
from bench.zoo.program import Runner, planned


@dataclass(frozen=True, slots=True)
class Compared:
    """A cluster whose plan was judged."""

    result: Result
    again: int
    """Pods that the next plan moves once more."""


async def compared(family: str, seed: int, run: Runner | None = None) -> Compared:
    """Plan and judge one cluster; `run` is another way to start the program."""
    drawn = drawn_for(family, seed)
    moves = await _moves(drawn, run)
    result = await asyncio.to_thread(judged, drawn, moves)
    then = await _moves(drawn.after(drawn.homes | dict(moves)), run) if moves else []
    return Compared(result, len(dict(moves).keys() & dict(then).keys()))


async def _moves(drawn: Drawn, run: Runner | None) -> list[Move]:
    plan = await planned(drawn.manifests(), run)
    return [(move["pod"].partition("/")[2], move["target"]) for move in plan.moves]


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.relocations")
    parser.add_argument("family", nargs="*", default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    given = parser.parse_args()
    print(
        f"{'family':<10}{'judged':>7}{'repaired':>9}{'most':>8}{'ratio':>7}{'moves':>7}{'fewest':>8}"
        f"{'again':>7}  broken"
    )
    for family in given.family:
        seeds = range(given.first, given.first + given.seeds)
        results = {seed: await compared(family, seed) for seed in seeds}
        counted = [each.result for each in results.values() if each.result.most is not None]
        same = [r for r in counted if r.repaired == r.most]
        found = Counter(
            judged=len(counted),
            repaired=sum(r.repaired for r in counted),
            most=sum(r.most or 0 for r in counted),
            moves=sum(r.moves for r in same),
            fewest=sum(r.fewest for r in same),
            again=sum(each.again for each in results.values()),
        )
        wrong = [(s, each.result.broken) for s, each in results.items() if each.result.broken]
        print(_line(family, found), wrong)


def _line(name: str, found: Counter[str]) -> str:
    ratio = found["repaired"] / found["most"] if found["most"] else 1.0
    return (
        f"{name:<10}{found['judged']:>7}{found['repaired']:>9}{found['most']:>8}{ratio:>7.3f}"
        f"{found['moves']:>7}{found['fewest']:>8}{found['again']:>7} "
    )


if __name__ == "__main__":
    asyncio.run(main())
