# SPDX-License-Identifier: Apache-2.0
"""Pods are put so that nodes are used as a scenario says."""

from __future__ import annotations

import pytest

from simulator.scenarios.placing import Piece, Place, PlacingError, place


def places(*targets: float, cpu: int = 8000, pods: int = 110) -> list[Place]:
    return [Place(f"n{i}", target, cpu, 2**35, pods) for i, target in enumerate(targets)]


def pieces(count: int, usage: float, *, cpu: int = 100, workload: str = "") -> list[Piece]:
    return [Piece(f"p{i:03}", workload or f"w{i}", usage, cpu, 2**20) for i in range(count)]


def test_nodes_come_close_to_their_targets() -> None:
    nodes = places(7000, 4000, 4000)
    place(pieces(50, 300), nodes)
    assert [round(node.used_milli, -3) for node in nodes] == [7000, 4000, 4000]


def test_requests_are_respected_even_where_usage_is_low() -> None:
    nodes = places(7000, 1000, cpu=1000)
    place(pieces(20, 400, cpu=100), nodes)
    assert [len(node.workloads) for node in nodes] == [10, 10]


def test_replicas_share_a_node_only_if_they_must() -> None:
    nodes = places(1000, 1000, 1000)
    place(pieces(3, 1000, workload="web"), nodes)
    assert [node.workloads for node in nodes] == [{"web": 1}] * 3


def test_who_asks_for_next_to_nothing_is_on_the_hot_nodes() -> None:
    hungry = [Piece(f"h{n}", f"h{n}", 700, 70, 0) for n in range(4)]
    modest = [Piece(f"a{n}", f"a{n}", 700, 700, 0) for n in range(4)]
    found = place([*modest, *hungry], places(1_400, 2_800, 1_400))
    assert {found[piece.key] for piece in hungry} == {"n1"}
    assert {found[piece.key] for piece in modest} == {"n0", "n2"}


def test_a_load_that_the_pods_cannot_make_is_refused() -> None:
    with pytest.raises(PlacingError, match=r"use 3\.0 CPU, but the load asks for 9\.0"):
        place(pieces(10, 300), places(9000))


def test_a_pod_without_room_is_refused() -> None:
    with pytest.raises(PlacingError, match="no node has room"):
        place(pieces(3, 1000), places(3000, pods=2))


def test_the_same_input_gives_the_same_places() -> None:
    one, two = places(5000, 5000), places(5000, 5000)
    assert place(pieces(20, 500), one) == place(list(reversed(pieces(20, 500))), two)
