# SPDX-License-Identifier: Apache-2.0
"""The node that a pod gets with a shortlist, beside the best one of all nodes.

Random clusters that are hard on a shortlist: zones of very different sizes, missing labels,
more zones than it has room for, nodes of several sizes, requests that say nothing about load,
unknown nodes, siblings that are piled up, everything hot. What counts are the scores of
kube-scheduler as the simulator computes them, normalized over the list that is scored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.api.objects import ReplicaSet
from common.cluster.records import NodeName
from common.fit import Candidate, FitIndex, Question, World
from common.fit.index.arrays import Ints
from extender.protocol import RequestPod
from simulator import build
from simulator.scheduler.choice import own_scores
from tests.support.stands.shortlist import controller
from tests.support.worlds.advisor import CREATED, AdvisorWorld
from tests.support.worlds.wire import stamped, uid_of, wire, wire_node, wire_pod

SEEDS = range(30)
PODS = 6
STEP = 60
"""What one point of the extender's 0 to 10 counts, with weight 6."""


class Choice(NamedTuple):
    """What a pod loses by its shortlist, in points of kube-scheduler's sum."""

    hidden: float
    """By how much the best listed node is worse than the best of all."""
    lost: float
    """The same of the node that it gets: scores are normalized over fewer nodes."""


async def test_a_shortlist_hides_no_node_that_is_clearly_better() -> None:
    found = [choice for seed in SEEDS for choice in await choices(seed)]
    assert len(found) > len(SEEDS) * PODS / 3
    assert max(each.hidden for each in found) < STEP / 2
    assert max(each.lost for each in found) <= STEP
    assert sum(each.lost for each in found) / len(found) < STEP / 30


async def choices(seed: int) -> list[Choice]:
    """Place some pods in the cluster of a seed; return the choices of those with a shortlist."""
    dice = random.Random(seed)
    world = AdvisorWorld(shortlist=dice.choice(["auto", "auto", 20]))
    owners = cluster(dice, world)
    index = FitIndex()
    found = []
    for number in range(PODS):
        pod = pending(dice, world, f"new-{number}", dice.choice([*owners, ""]))
        ask = World(world.state.snapshot(), index).ask(Candidate.of(pod.record))
        names = ask.feasible()
        if len(names) > 1:
            whole = dict(zip(names, sums(world, pod, ask, names).tolist(), strict=True))
            kept = (await world.advisor.filter(pod, names)).keep
            listed = sums(world, pod, ask, kept)
            best = max(whole.values())
            got = [whole[kept[place]] for place in np.flatnonzero(listed == listed.max()).tolist()]
            if len(kept) < len(names):
                found.append(Choice(best - max(whole[name] for name in kept), best - min(got)))
        world.state.pods.forget(f"default/{pod.name}")
    return found


def sums(world: AdvisorWorld, pod: RequestPod, ask: Question, names: Sequence[str]) -> Ints:
    """Return the sum of all scores of each node, as if only these could be had."""
    scores = np.array(world.advisor.prioritize(pod, names).values)
    found: Ints = own_scores(ask, names) + STEP * scores
    return found


def cluster(dice: random.Random, world: AdvisorWorld) -> list[str]:
    """Fill a world; return the names of controllers."""
    names = [f"n{number:03}" for number in range(dice.choice([51, 60, 120, 300]))]
    zones = dice.choice([even, skewed, partial, many, none])
    honest, mixed = dice.random(), dice.random() < 0.4
    base = dice.choice([0.0, 0.0, 80.0])
    for number, name in enumerate(names):
        zone = zones(number, len(names)) or None
        world.node(name, zone=zone)
        if mixed and dice.random() < 0.3:
            large = build.node(name, zone=zone, cpu="40", memory="40Gi")
            world.state.nodes.upsert(wire_node(large))
        use = base + dice.choice([dice.uniform(0, 95), dice.gauss(40, 10), 20.0])
        asked = honest * use + (1 - honest) * dice.uniform(0, 95)
        world.busy(name, max(0.0, use), dice.uniform(0, 60), asked=min(95.0, max(0.0, asked)))
    owners = [f"web-{number}" for number in range(4)]
    for owner in owners:
        made = build.replica_set(owner, replicas=30, labels={"app": owner})
        world.state.replica_sets.upsert(wire(ReplicaSet, stamped(made, uid=uid_of(owner))))
        among = names[: dice.choice([3, len(names) // 2, len(names)])]
        for number in range(dice.choice([0, 2, 10, 60])):
            run(world, f"{owner}-{number}", owner, node=dice.choice(among))
    world.measure()
    return owners


def even(number: int, _: int) -> str:
    return "abc"[number % 3]


def skewed(number: int, nodes: int) -> str:
    return "a" if number < 3 else "b" if number < 3 + nodes // 8 else "c"


def partial(number: int, _: int) -> str:
    return "" if number % 4 == 0 else "ab"[number % 2]


def many(number: int, _: int) -> str:
    return f"zone-{number % 30}"


def none(_: int, __: int) -> str:
    return ""


def run(world: AdvisorWorld, name: str, owner: str, *, node: str) -> None:
    made = build.pod(name, node=node, labels={"app": owner}, cpu="10m", memory="10Mi")
    owners = [controller(owner)]
    status = {"phase": "Running"}
    pod = wire_pod(made, uid=uid_of(name), ownerReferences=owners, status=status)
    world.state.pods.upsert(pod)


def pending(dice: random.Random, world: AdvisorWorld, name: str, owner: str) -> RequestPod:
    """Return a pod to place, as the watch shows it."""
    asked = {"cpu": dice.choice(["10m", "100m", "1", "4"]), "memory": dice.choice(["10Mi", "1Gi"])}
    made = build.pod(name, labels={"app": owner or "bare"}, **asked)
    owners = [controller(owner)] if owner else []
    wired = wire_pod(made, uid=uid_of(name), creationTimestamp=CREATED, ownerReferences=owners)
    world.state.pods.upsert(wired)
    record = world.state.pods.records.get(f"default/{name}")
    assert record is not None
    return RequestPod(
        namespace="default",
        name=name,
        uid=record.uid,
        nominated_node=NodeName(""),
        record=record,
    )
