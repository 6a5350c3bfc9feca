# SPDX-License-Identifier: Apache-2.0
"""A node that was relieved is not relieved again, however far back its figure reaches.

Tracker, strategies, gates, planner and validation are the real ones, on curves of our own.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench.curves import Curves
from bench.replay import CPU_MILLI, Replay, Size, configuration

CHOICES = ("last/last", "mean:15m/mean:15m", "p95:30m/p95:60m")
DRAINS_S = (0.0, 600.0)
NODES = 4
POINTS = 12
"""An hour."""


def shares(*percent: float) -> Curves:
    """Return pods that always use so many percent of a node."""
    return np.tile(np.array([percent]).T, (1, POINTS)) * CPU_MILLI / 100.0


def replayed(
    use: Curves, places: list[int], choice: str, drain_s: float, *, first_cycle: int = 0
) -> Replay:
    size = Size(nodes=NODES, drain_s=drain_s)
    replay = Replay(use, size, configuration(choice, ["ResourceOptimization"]), places)
    replay.run(first_cycle=first_cycle)
    return replay


@pytest.mark.parametrize("drain_s", DRAINS_S)
@pytest.mark.parametrize("choice", CHOICES)
def test_one_eviction_relieves_a_node_for_good(choice: str, drain_s: float) -> None:
    """94 % by six pods of the same size: without one of them it is at 78 %."""
    use = shares(*[94.0 / 6] * 6, 30.0, 30.0, 30.0)
    found = replayed(use, [0] * 6 + [1, 2, 3], choice, drain_s).result
    assert found.evictions == 1


@pytest.mark.parametrize("drain_s", DRAINS_S)
@pytest.mark.parametrize("choice", ["mean:30m/mean:30m", "p95:30m/last"])
def test_a_burst_leaves_with_the_pod_that_had_it(choice: str, drain_s: float) -> None:
    """A pod used half of the node for twenty minutes, and hardly uses anything by now.

    It is the one to move, and its past leaves with it, also while it still drains.
    """
    use = shares(65.0, 15.0, 15.0, 15.0, 10.0, 10.0, 10.0)
    use[0, 4:] /= 65.0
    replay = replayed(use, [0] * 4 + [1, 2, 3], choice, drain_s, first_cycle=20)
    assert replay.result.evictions == 1
    assert replay.pods_on(0) == 3
    assert replay.moved() == {0}


def test_a_short_burst_moves_nothing_where_the_mean_of_an_hour_decides() -> None:
    use = shares(50.0, 15.0, 15.0, 15.0, 30.0, 30.0, 30.0)
    use[0] /= 25.0
    use[0, 8] *= 25.0
    places = [0] * 4 + [1, 2, 3]
    assert replayed(use, places, "last/last", 0.0).result.evictions > 0
    assert replayed(use, places, "mean:60m/mean:60m", 0.0).result.evictions == 0


def test_a_target_with_bursts_is_not_filled_by_a_percentile() -> None:
    """Node 1 is nearly idle but for a burst every ten minutes, node 2 is always at 55 %."""
    use = shares(*[94.0 / 6] * 6, 10.0, 55.0, 79.0)
    use[:6, :4] = 0.0  # node 0 becomes hot after twenty minutes
    use[6, 1::2] *= 7.5
    places = [0] * 6 + [1, 2, 3]
    filled = replayed(use, places, "last/last", 0.0)
    assert filled.pods_on(1) > 1
    spared = replayed(use, places, "last/p95:30m", 0.0)
    assert spared.pods_on(1) == 1
    assert spared.pods_on(2) == 2
