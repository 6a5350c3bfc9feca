# SPDX-License-Identifier: Apache-2.0
"""Waits grow, stay within their bounds, and differ."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from common.kube.backoff import Backoff


@given(st.floats(0.001, 10), st.floats(0.001, 100), st.integers(0, 2**32), st.integers(1, 2000))
def test_waits_stay_between_floor_and_cap(
    floor_s: float, cap_s: float, seed: int, count: int
) -> None:
    backoff = Backoff(floor_s=floor_s, cap_s=cap_s, rng=random.Random(seed))
    waits = [backoff.next_s() for _ in range(count)]
    assert all(floor_s <= wait <= max(floor_s, cap_s) for wait in waits)


def test_the_ceiling_doubles_up_to_the_cap_and_starts_anew_after_a_reset() -> None:
    backoff = Backoff(floor_s=1, cap_s=10, rng=_Highest())
    assert [backoff.next_s() for _ in range(5)] == [2, 4, 8, 10, 10]
    backoff.reset()
    assert backoff.next_s() == 2


def test_clients_that_failed_together_come_back_apart() -> None:
    clients = [Backoff(floor_s=1, cap_s=30, rng=random.Random(seed)) for seed in range(50)]
    for client in clients:
        for _ in range(5):
            client.next_s()
    waits = sorted(client.next_s() for client in clients)
    assert len(set(waits)) == 50
    assert waits[-1] - waits[0] > 15


class _Highest(random.Random):
    def uniform(self, _: float, b: float) -> float:
        return b
