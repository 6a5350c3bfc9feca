# SPDX-License-Identifier: Apache-2.0
"""Each strategy and the plugin of the descheduler with the same purpose, on the same cluster.

A real control plane with kwok nodes on which something is wrong, and of which the fewest evictions
are known. Both programs of Evenkeel run until nothing moves any more; then everything is created
again and the plugin runs, cycle after cycle, until it evicts nothing more, ten times at most.
*repeated* are evictions of pods that replaced an evicted one; *left* is how much is still wrong.

    python -m bench.plugins [CASE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench import descheduler
from bench.plugins.cases import CASES, Case
from bench.plugins.contest import OURS, Outcome, ours, peer
from bench.stands.cluster import Cluster
from controlplane.cluster import ClusterOptions, ControlPlane, up
from controlplane.guardian import Guardian

HEAD = "| case | | fewest | evictions | repeated | left |\n|---|---|---|---|---|---|"


async def run(plane: ControlPlane, binary: Path, cases: Sequence[Case], folder: Path) -> None:
    print(HEAD, flush=True)
    for case in cases:
        async with _fresh(plane, folder) as cluster:
            _print(case, await ours(cluster, folder, case))
        async with _fresh(plane, folder) as cluster:
            _print(case, await peer(cluster, binary, case))


def _print(case: Case, found: Outcome) -> None:
    ours_ = found.contestant == OURS
    name = case.name if ours_ else ""
    who = f"**{OURS}**, `{case.strategy}`" if ours_ else f"`{case.plugin}`"
    cells = (name, who, case.fewest, found.evictions, found.repeated, found.left)
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


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
    parser = argparse.ArgumentParser(prog="python -m bench.plugins", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [case.name for case in CASES]
    parser.add_argument("case", nargs="*", help=f"one of: {', '.join(names)} (default: all)")
    wanted = parser.parse_args().case or names
    if unknown := set(wanted) - set(names):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    # Stop everything on SIGINT, even where a shell started us with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    binary = descheduler.build()
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-plugins-"))
    guardian = Guardian(folder / "cp")
    try:
        plane = up(ClusterOptions(folder / "cp"), lambda line: None)
        cases = [case for case in CASES if case.name in wanted]
        asyncio.run(run(plane, binary, cases, folder))
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        guardian.dismiss()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
