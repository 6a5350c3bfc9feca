# SPDX-License-Identifier: Apache-2.0
"""A burst of pods with too small requests is spread before they can be measured.

The scheduler is played here: it takes one of the best nodes by chance, the watch shows a
binding some pods later, and boards come later still.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque

import pytest

from tests.support.worlds.advisor import AdvisorWorld

NODES = tuple(f"n{i:02}" for i in range(20))
PODS = 100
USES = 12.0
"""Percents of a node that each pod really uses; it asks for a tenth of one."""
THRESHOLD = 80.0


async def burst(world: AdvisorWorld, *, watch_lag: int, board_every: int) -> list[float]:
    """Place the pods one after the other; return what each node really uses in the end."""
    dice, placed, unseen = random.Random(7), Counter[str](), deque[tuple[str, str]]()
    for number in range(PODS):
        name = f"pod-{number}"
        pod = world.pod(name, cpu=0.1, mem=0.1)
        kept = (await world.advisor.filter(pod, NODES)).keep
        scores = world.advisor.prioritize(pod, kept).values
        best = [n for n, score in zip(kept, scores, strict=True) if score == max(scores)]
        chosen = dice.choice(best)
        placed[chosen] += 1
        unseen.append((name, chosen))
        while len(unseen) > watch_lag:
            world.bind(*unseen.popleft())
        if number % board_every == 0:
            world.refresh()
    return [USES * placed[name] for name in NODES]


def uneven(loads: list[float]) -> bool:
    return max(loads) > THRESHOLD and min(loads) < THRESHOLD / 2


@pytest.mark.parametrize(("watch_lag", "board_every"), [(0, 1), (2, 10), (5, 25), (10, 1000)])
def test_no_node_ends_above_its_threshold_while_another_is_below_half(
    watch_lag: int, board_every: int
) -> None:
    world = AdvisorWorld()
    world.loads(**dict.fromkeys(NODES, 0.0))
    loads = asyncio.run(burst(world, watch_lag=watch_lag, board_every=board_every))
    assert sum(loads) == PODS * USES
    assert not uneven(loads)


def test_without_the_floor_the_same_burst_ends_badly() -> None:
    world = AdvisorWorld(newPodFloor=0.0)
    world.loads(**dict.fromkeys(NODES, 0.0))
    assert uneven(asyncio.run(burst(world, watch_lag=2, board_every=10)))


def test_two_hot_nodes_get_nothing_while_others_have_room() -> None:
    world = AdvisorWorld()
    hot = dict.fromkeys(NODES[:2], 70.0)
    world.loads(**dict.fromkeys(NODES, 0.0) | hot)
    loads = asyncio.run(burst(world, watch_lag=2, board_every=10))
    assert loads[:2] == [0.0, 0.0]


async def test_a_burst_is_not_confined_to_the_first_shortlist() -> None:
    """Each answer counts for the next one: 500 pods end on the coolest nodes, level."""
    world = AdvisorWorld()
    names = [f"n{number:03}" for number in range(400)]
    world.loads(**{name: 0.175 * number for number, name in enumerate(names)})
    placed = Counter[str]()
    for number in range(500):
        pod = world.pod(f"pod-{number}", cpu=1, mem=1, owner="web")
        kept = (await world.advisor.filter(pod, names)).keep
        assert 50 <= len(kept) <= 63
        scores = dict(zip(kept, world.advisor.prioritize(pod, kept).values, strict=True))
        # Of equal nodes kube-scheduler takes one with few pods of the same controller.
        chosen = min(kept, key=lambda name: (-scores[name], placed[name]))
        placed[chosen] += 1
        world.bind(f"pod-{number}", chosen)
    charged = [0.175 * number + 2.5 * placed[name] for number, name in enumerate(names)]
    used = [load for name, load in zip(names, charged, strict=True) if placed[name]]
    assert len(placed) > 100
    assert max(used) <= min(charged) + 16.0  # two points of score
