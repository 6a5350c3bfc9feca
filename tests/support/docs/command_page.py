# SPDX-License-Identifier: Apache-2.0
"""The output on the page of the command, from real runs on a simulated cluster.

Each block that begins with `$ evenkeel …` is played. A line `…` stands for lines that are left
out: what follows it is found again in the new output by its first line. Figures, names and times
differ from run to run; lines are the same if only those differ.

    python -m tests.support.docs.command_page      # writes the page
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from common.clock import SYSTEM
from common.kube.resources import LEASES
from simulator.cluster import SimulatedCluster
from simulator.scenarios import load_scenario
from simulator.serve import ServeOptions, serving
from tests.support.repository import ROOT
from tests.support.stands import installed
from tests.support.stands.command import at, evenkeel
from tests.support.stands.simulated_cluster import measured_pods

PAGE: Final = ROOT / "docs" / "command.md"
ELLIPSIS: Final = "…"
LEADER: Final = "evenkeel-rebalancer-7d9c8b6f5-x2x7p-1f0a3c"
OLD_ENOUGH: Final = (
    "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\n"
    "minPodAge: 0s\nminNodeAge: 0s\n"
)
TRIED: Final = OLD_ENOUGH + "imbalanceThreshold: 5\n"
_BLOCK: Final = re.compile(
    r"^```console\n\$ evenkeel (?P<command>[^\n]+)\n(?P<output>[^`$]+?)\n```$", re.MULTILINE
)
_POD: Final = re.compile(r"default/[a-z0-9-]+")
_MASKS: Final = (
    (_POD, "POD"),
    (re.compile(r"plan-[0-9a-f]+"), "PLAN"),
    (re.compile(r"[█·]+"), "BAR"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
    (re.compile(r"(?:N[hms] ?)+"), "TIME"),
    (re.compile(r"\s+"), " "),
)


def masked(line: str) -> str:
    """Return a line without what differs from run to run."""
    for pattern, word in _MASKS:
        line = pattern.sub(word, line)
    return line.strip()


def renewed(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the lines of a new output that a block shows; raise LookupError if one is gone."""
    found: list[str] = []
    place, gap = 0, False
    for line in old:
        if line == ELLIPSIS:
            found.append(line)
            gap = True
            continue
        if gap:
            place = next((i for i in range(place, len(new)) if masked(new[i]) == masked(line)), -1)
            gap = False
        if not 0 <= place < len(new):
            raise LookupError(f"no longer in the output: {line}")
        found.append(new[place])
        place += 1
    return found


@asynccontextmanager
async def stand(folder: Path) -> AsyncIterator[tuple[SimulatedCluster, tuple[str, str]]]:
    """Run the cluster that the page shows; Evenkeel is not installed in it."""
    options = ServeOptions(scenario=load_scenario("hot-spots"), seed=1, speed=60.0)
    async with serving(options, clock=SYSTEM) as cluster:
        pods = len(cluster.pods())
        while len(measured_pods(cluster)) < pods:
            await SYSTEM.sleep(0.1)
        yield cluster, at(cluster, folder)


async def played(
    cluster: SimulatedCluster, flags: tuple[str, str], folder: Path, command: str
) -> tuple[str, list[str]]:
    """Run a command of the page; return it as it was run, and what it printed."""
    words = command.split()
    judged: tuple[str, ...] = ()
    (folder / "try.yaml").write_text(TRIED)
    old_enough = folder / "old.yaml"
    old_enough.write_text(OLD_ENOUGH)
    if words[0] in ("why", "drain"):
        judged = ("--config", str(old_enough))
    if words[:2] == ["why", "pod"]:
        plan = (await evenkeel(*flags, *judged, "plan", "-o", "json")).json
        words[2] = plan["moves"][0]["pod"]
    if words[0] == "status":
        _install(cluster)
    with contextlib.chdir(folder):
        found = await evenkeel(*flags, *judged, *words)
    assert found.code in (0, 3), found.err
    return " ".join(words), [line.rstrip() for line in found.out.strip("\n").split("\n")]


def _install(cluster: SimulatedCluster) -> None:
    installed.install(cluster)
    holder = {"spec": {"holderIdentity": LEADER}}
    cluster.store.patch(LEASES, installed.LEADER, holder, namespace=installed.NAMESPACE)


def blocks(page: str) -> Iterator[re.Match[str]]:
    """Return the commands of the page, those that need an installation last."""
    found = list(_BLOCK.finditer(page))
    yield from sorted(found, key=lambda block: block["command"] == "status")


async def written() -> str:
    """Return the page with the output of today."""
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with stand(folder) as (cluster, flags):
            for block in list(blocks(page)):
                command, new = await played(cluster, flags, folder, block["command"])
                lines = renewed(block["output"].split("\n"), new)
                text = "\n".join(["```console", f"$ evenkeel {command}", *lines, "```"])
                page = page.replace(block[0], text)
    return page


if __name__ == "__main__":
    PAGE.write_text(asyncio.run(written()), encoding="utf-8")
