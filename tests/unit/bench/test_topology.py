# SPDX-License-Identifier: Apache-2.0
"""The judge of spread constraints knows known optima, and the running program reaches one."""

from __future__ import annotations

import pytest

from bench.topology import ZONE, Constraint, Drawn, Judge, Node, Workload, compared, replayed


def drawn(homes: str, *, cores: int = 8, hard: bool = True, firm: float = 0.0) -> Drawn:
    """Return zones a, b and c of one node each, and a pod in each zone that is named."""
    found = Drawn()
    for zone in "abc":
        found.nodes[zone] = Node(zone, cores)
    workload = Workload((Constraint(ZONE, hard=hard),), "web", cores=1.0)
    found.add("web", workload, list(homes), firm)
    return found


@pytest.mark.parametrize(
    ("cluster", "fewest"),
    [
        (drawn("aaabbb"), 2),
        (drawn("abc"), 0),
        (drawn("aaaa"), 2),
        (drawn("aaaa", firm=1.0), None),
        (drawn("aaaabb", firm=0.3), 2),
        (Drawn(), 0),
    ],
)
def test_the_judge_knows_the_fewest_moves(cluster: Drawn, fewest: int | None) -> None:
    assert Judge(cluster).fewest() == fewest


def test_moves_are_replayed_in_their_order() -> None:
    cluster = drawn("aab", firm=0.3)
    assert replayed(cluster, [("web-1", "c")]) == ([], 0)
    broken, left = replayed(cluster, [("web-2", "a")])
    assert broken == [f"web-2 to a breaks {Constraint(ZONE)}"]
    assert left == 1
    assert replayed(cluster, [("web-0", "c")])[0] == ["web-0 may not go to c"]
    full = drawn("ab", cores=1)
    assert "a is requested more than it has" in replayed(full, [("web-1", "a")])[0]


async def test_the_running_program_takes_the_fewest() -> None:
    result = await compared("returned", 1)
    assert result.broken == ()
    assert result.left == 0
    assert result.evictions == result.fewest
