# SPDX-License-Identifier: Apache-2.0
"""Taints keep away here what they keep away in Kubernetes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.api.objects import Effect, Taint, Toleration
from common.cluster.tolerations import REPELLING, tolerated, tolerates, untolerated

TAINT = Taint("dedicated", "batch", "NoSchedule")
EFFECTS = [str(effect) for effect in Effect]

taints = st.builds(
    Taint, st.sampled_from("abc"), st.sampled_from(("", "x", "5")), st.sampled_from(EFFECTS)
)
tolerations = st.builds(
    Toleration,
    st.sampled_from(("", "a", "b")),
    st.sampled_from(("", "Equal", "Exists", "Lt", "Gt")),
    st.sampled_from(("", "x", "9")),
    st.sampled_from(("", *EFFECTS)),
)


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        (Toleration("dedicated", "Equal", "batch", "NoSchedule"), True),
        (Toleration("dedicated", "", "batch", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "batch"), True),
        (Toleration("dedicated", "Exists", "", "NoSchedule"), True),
        (Toleration("dedicated", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoSchedule"), True),
        (Toleration("", "Equal", "batch"), True),
        (Toleration("dedicated", "Equal", "other", "NoSchedule"), False),
        (Toleration("dedicated", "", ""), False),
        (Toleration("other", "Equal", "batch", "NoSchedule"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("dedicated", "Equal", "batch", "NoExecute"), False),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("dedicated", "In", "batch"), False),
        (Toleration("dedicated", "exists"), False),
        (Toleration(), False),
    ],
    ids=str,
)
def test_a_toleration_covers_a_taint(toleration: Toleration, covered: bool) -> None:
    assert tolerates(toleration, TAINT) is covered


@pytest.mark.parametrize(("operator", "value"), [("Lt", "9"), ("Gt", "1")])
def test_comparing_operators_are_off_as_they_are_by_default(operator: str, value: str) -> None:
    assert not tolerates(Toleration("level", operator, value), Taint("level", "5", "NoSchedule"))


def test_the_empty_toleration_covers_taints_without_a_value() -> None:
    assert tolerates(Toleration(), Taint("dedicated", "", "NoSchedule"))


def test_the_first_taint_that_nobody_tolerates_is_named() -> None:
    soft = Taint("a", "", "PreferNoSchedule")
    hard, evicting = Taint("b", "", "NoSchedule"), Taint("c", "", "NoExecute")
    assert untolerated((soft, hard, evicting), ()) == hard
    assert untolerated((soft, hard, evicting), (Toleration("b", "Exists"),)) == evicting
    assert untolerated((soft, hard), (Toleration("b", "Exists"),)) is None
    assert untolerated((soft, hard), (), {Effect.PREFER_NO_SCHEDULE}) == soft
    assert untolerated((), ()) is None


def test_unknown_effects_repel_nobody() -> None:
    assert untolerated((Taint("a", "", "NoNoise"),), ()) is None


@given(st.lists(taints, max_size=4), st.lists(tolerations, max_size=4))
def test_nothing_is_untolerated_exactly_when_every_repelling_taint_is_covered(
    found: list[Taint], allowed: list[Toleration]
) -> None:
    hard = [taint for taint in found if taint.effect in REPELLING]
    assert (untolerated(found, allowed) is None) is all(tolerated(t, allowed) for t in hard)


@given(taints)
def test_a_bare_exists_covers_every_taint(taint: Taint) -> None:
    assert tolerates(Toleration(operator="Exists"), taint)


def test_both_are_read_from_the_wire_and_hash() -> None:
    taint = msgspec.json.decode(
        b'{"key":"k","effect":"NoExecute","timeAdded":"2024-01-01T00:00:00Z"}', type=Taint
    )
    toleration = msgspec.json.decode(
        b'{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}',
        type=Toleration,
    )
    assert toleration.toleration_seconds == 300
    assert tolerates(toleration, taint)
    assert len({taint, Taint("k", "", "NoExecute")}) == 1
    assert len({toleration, Toleration("k", "Exists", "", "NoExecute", 300)}) == 1
