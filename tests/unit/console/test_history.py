# SPDX-License-Identifier: Apache-2.0
"""Two hours of load are remembered, in bounded memory, and nothing unknown becomes a zero."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from console.data import LoadMoment
from console.history import KEPT_S, MOST, RECENT_S, History

Level = tuple[str, float | None, float | None]


def cell(name: str, cpu: float | None, memory: float | None = 10.0) -> Level:
    return name, cpu, memory


def moment(at_s: float, cells: Sequence[Level]) -> LoadMoment:
    names, cpu, memory = zip(*cells, strict=True)
    return LoadMoment(at_s=at_s, names=names, cpu=cpu, memory=memory)


def test_an_empty_history_says_that_nothing_is_known() -> None:
    found = History().cluster()
    assert (found.since_s, found.times, found.cpu.highest) == (None, (), ())


def test_highest_mean_and_lowest_leave_out_what_is_unknown() -> None:
    history = History()
    history.record(moment(100.0, [cell("a", 90.0), cell("b", 30.0), cell("c", None, None)]))
    found = history.cluster()
    assert (found.cpu.highest, found.cpu.mean, found.cpu.lowest) == ((90.0,), (60.0,), (30.0,))
    assert history.node("c").cpu == (None,)


def test_a_cluster_of_unknown_nodes_has_no_curve() -> None:
    history = History()
    history.record(moment(100.0, [cell("a", None, None)]))
    assert history.cluster().cpu.mean == (None,)


def test_a_node_is_followed_while_others_come_and_go() -> None:
    history = History()
    history.record(moment(100.0, [cell("a", 10.0)]))
    history.record(moment(101.0, [cell("0", 99.0), cell("a", 20.0)]))
    history.record(moment(102.0, [cell("0", 99.0)]))
    history.record(moment(103.0, [cell("a", 40.0), cell("b", 1.0)]))
    found = history.node("a")
    assert (found.times, found.cpu) == ((100.0, 101.0, 103.0), (10.0, 20.0, 40.0))


def test_the_same_sample_is_kept_once() -> None:
    history = History()
    for _ in range(3):
        history.record(moment(100.0, [cell("a", 10.0)]))
    assert history.cluster().times == (100.0,)


@pytest.mark.parametrize("apart_s", [1.0, 15.0, 600.0])
def test_memory_is_bounded_and_recent_samples_stay(apart_s: float) -> None:
    history, cells = History(), [cell("a", 10.0)]
    moments = int(3 * KEPT_S / apart_s)
    for i in range(moments):
        history.record(moment(i * apart_s, cells))
    times, last = history.cluster().times, (moments - 1) * apart_s
    assert len(times) <= MOST + 1
    assert last - times[0] <= KEPT_S
    recent = [t for t in times if last - t <= RECENT_S]
    assert len(recent) >= min(RECENT_S / apart_s, len(times)) * 0.99
    assert last - times[0] >= KEPT_S * 0.9 - apart_s


def test_extreme_figures_fit() -> None:
    history = History()
    history.record(moment(1.0, [cell("a", 1e9), cell("b", 0.0)]))
    assert history.node("a").cpu == (3200.0,)
    assert msgspec.json.encode(history.cluster())
