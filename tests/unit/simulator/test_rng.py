# SPDX-License-Identifier: Apache-2.0
"""Draws depend on the seed and their name, on nothing else."""

from __future__ import annotations

from simulator.rng import Rng


def test_the_same_seed_and_name_give_the_same_number() -> None:
    assert Rng(7).share("start", "a") == Rng(7).share("start", "a")


def test_other_draws_before_change_nothing() -> None:
    rng = Rng(7)
    for number in range(50):
        rng.share("other", str(number))
    assert rng.share("start", "a") == Rng(7).share("start", "a")


def test_seeds_and_names_make_a_difference() -> None:
    drawn = {Rng(seed).share(name) for seed in range(3) for name in "abc"}
    assert len(drawn) == 9


def test_draws_fill_their_range() -> None:
    drawn = [Rng(1).between(10, 20, str(number)) for number in range(1000)]
    assert min(drawn) >= 10
    assert max(drawn) < 20
    assert 14 < sum(drawn) / len(drawn) < 16
