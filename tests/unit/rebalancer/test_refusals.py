# SPDX-License-Identifier: Apache-2.0
"""The table of reasons: every refusal that the code makes fits a message in it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from string import Formatter
from typing import NamedTuple

import pytest

from rebalancer.limits import LIMITS
from rebalancer.refusals import Reason, Refusal, reported, unjudgeable
from tests.support.repository import ROOT

SOURCES = {path: path.read_text() for path in sorted((ROOT / "rebalancer").rglob("*.py"))}
# Each worker of a parallel run reads this module: only what names a reason is parsed for it.
NODES = {
    path: tuple(ast.walk(ast.parse(text))) for path, text in SOURCES.items() if "Reason." in text
}
EVENTS = frozenset({"MaintenanceEnded", "Migrating", "MigrationFailed", "NoMetrics", "Observing"})
"""Names that Kubernetes Events have too; an Event's reason is not a refusal."""


class Call(NamedTuple):
    """One `Reason.X.refusal("case", field=…)` in the code."""

    reason: Reason
    case: str | None
    """None where it is decided at run time."""
    fields: frozenset[str] | None
    """None where they are handed over as a mapping."""
    place: str

    @property
    def complete(self) -> bool:
        """Tell whether all of it is written out."""
        return self.case is not None and self.fields is not None


def calls() -> Iterator[Call]:
    for path, nodes in NODES.items():
        for node in nodes:
            if isinstance(node, ast.Call) and (reason := _reason(node.func)) is not None:
                given = [keyword.arg for keyword in node.keywords]
                fields = None if None in given else frozenset(name for name in given if name)
                yield Call(reason, _case(node), fields, f"{path.name}:{node.lineno}")


def _reason(called: ast.expr) -> Reason | None:
    match called:
        case ast.Attribute(ast.Attribute(ast.Name("Reason"), name), "refusal"):
            return Reason[name]
    return None


def _case(call: ast.Call) -> str | None:
    match call.args:
        case []:
            return ""
        case [ast.Constant(str(case))]:
            return case
    return None


def mentions() -> Iterator[Reason]:
    for nodes in NODES.values():
        for node in nodes:
            match node:
                case ast.Attribute(ast.Name("Reason"), name):
                    yield Reason[name]


CALLS = tuple(calls())
MENTIONED = Counter(mentions())


def fields_of(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)


@pytest.mark.parametrize(
    "call",
    [call for call in CALLS if call.complete],
    ids=lambda call: f"{call.reason} {call.place}",
)
def test_every_refusal_fills_its_message(call: Call) -> None:
    assert call.fields == fields_of(call.reason.messages[call.case or ""].template)


@pytest.mark.parametrize("reason", Reason)
def test_every_message_is_used(reason: Reason) -> None:
    given = [call.case for call in CALLS if call.reason is reason]
    # Handed on as a value, or with a case from elsewhere: which messages it gives is not known.
    handed_on = MENTIONED[reason] > len(given) or None in given
    assert handed_on or set(given) == reason.messages.keys()


def test_reasons_are_named_by_the_enum_alone() -> None:
    names = {str(reason) for reason in Reason} - EVENTS - {limit.name for limit in LIMITS}
    found = [
        f"{path.name}:{node.lineno}: {node.value}"
        for path, text in SOURCES.items()
        if path.name != "refusals.py"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert found == []


def test_a_reason_is_named_as_its_constant() -> None:
    for reason in Reason:
        assert reason.name.replace("_", "").lower() == reason.value.lower()


def test_a_refusal_knows_whether_waiting_helps() -> None:
    assert Reason.NOT_PLACED.refusal().for_now()
    assert not Reason.MIRROR_POD.refusal().for_now()
    assert reported("ImagePullBackOff", "no image").for_now()


def test_refusals_are_plain_values_that_sort_by_name() -> None:
    young = Reason.TOO_YOUNG.refusal(age="3s", wanted=120.0)
    assert young == Refusal(
        "TooYoung", "it has been running for 3s, minPodAge is 120s", permanent=False
    )
    assert young.name == Reason.TOO_YOUNG
    assert sorted([young, Reason.TERMINATING.refusal()])[0].name == Reason.TERMINATING


def test_a_long_error_is_cut() -> None:
    found = unjudgeable(ValueError("x" * 1000))
    assert found.name == Reason.UNJUDGEABLE
    assert len(found.message) < 250
