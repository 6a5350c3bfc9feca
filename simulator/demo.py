"""`python -m simulator demo`: a simulated cluster getting hot under the plain scheduler.

It ends by itself with a summary, or with `--json` with one line of figures. What only the
extender and the rebalancer could tell is null.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.clock import SYSTEM, Clock
from common.kube.resources import PODS
from simulator.api import Change, Json, Store
from simulator.cluster import SimulatedCluster
from simulator.demo_view import View, view_for
from simulator.figures import HOT_PERCENT, Look, look
from simulator.serve import Wanted, scenario_of, serving, stay

SCENARIO: Final = "requests-mislead"
_WATCH_SIMULATED_S: Final = 90.0
_LONGEST_S: Final = 50.0
_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a demo came to."""

    before: Look
    after: Look
    evictions: int
    seconds: float

    def json(self) -> Json:
        """Return the figures under their published names."""
        return {
            "hotBefore": self.before.hot,
            "hotAfter": self.after.hot,
            "spreadBefore": self.before.spread,
            "spreadAfter": self.after.spread,
            "evictions": self.evictions,
            "lowerBound": None,
            "landedAsPlanned": None,
            "landedElsewhere": None,
            "evictedAgain": None,
            "seconds": round(self.seconds, 1),
        }


class EvictionCount:
    """Counts the pods that the Eviction API has let go."""

    def __init__(self, store: Store) -> None:
        self._seen: set[str] = set()
        store.subscribe(PODS, self._on_pod)

    def __int__(self) -> int:
        return len(self._seen)

    def _on_pod(self, change: Change) -> None:
        for condition in change.obj.get("status", {}).get("conditions") or ():
            if condition.get("reason") == "EvictionByEvictionAPI":
                self._seen.add(change.obj["metadata"]["uid"])


async def demo(flags: argparse.Namespace) -> None:
    """Show the cluster, then say what was seen."""
    name = flags.scenario or SCENARIO
    scenario = scenario_of(name, None)
    wanted = Wanted(scenario=scenario, seed=flags.seed, speed=flags.speed)
    view = view_for(name, scenario.description)
    with tempfile.TemporaryDirectory(prefix="evenkeel-demo-") as folder:
        async with serving(wanted, clock=SYSTEM) as cluster:
            outcome = await watch(cluster, view, clock=SYSTEM)
            view.end(summary(outcome))
            if flags.json:
                print(json.dumps(outcome.json()), flush=True)
            if flags.keep:
                path = cluster.write_kubeconfig(Path(folder) / "kubeconfig")
                print(f"kubeconfig: {path}\nCtrl-C ends the cluster", flush=True)
                await stay(cluster)


async def watch(cluster: SimulatedCluster, view: View, *, clock: Clock) -> Outcome:
    """Show what is measured until it has been seen long enough."""
    evictions = EvictionCount(cluster.store)
    began = clock.monotonic()
    before: Look | None = None
    with view:
        while True:
            seen = look(cluster.metrics.node_metrics(), cluster.mirror.snapshot())
            before = seen if before is None and seen.complete else before
            took = clock.monotonic() - began
            view.show(seen, took, pods=_running(cluster))
            enough = cluster.machinery.pace.elapsed_s() >= _WATCH_SIMULATED_S
            if took >= _LONGEST_S or (enough and before is not None):
                return Outcome(before or seen, seen, int(evictions), took)
            await clock.sleep(_EVERY_S)


def summary(outcome: Outcome) -> str:
    """Return what was seen, for people."""
    look = outcome.after
    hottest = max(look.percent.items(), key=lambda each: each[1], default=("no node", 0.0))
    return (
        f"{look.hot} of {look.nodes} nodes use more than {HOT_PERCENT:.0f} % of their CPU; "
        f"the highest is {hottest[0]} with {hottest[1]:.0f} %, {look.spread or 0:.0f} points "
        f"above the lowest. The plain scheduler looks at requests only and leaves it at that."
    )


def _running(cluster: SimulatedCluster) -> int:
    return sum(len(kubelet.pods) for kubelet in cluster.fleet.kubelets.values())
