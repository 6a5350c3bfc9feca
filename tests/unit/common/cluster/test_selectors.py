# SPDX-License-Identifier: Apache-2.0
"""Selectors select here what they select in Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.api.selectors import LabelSelector, NodeSelectorTerm, WireNodeSelector
from common.cluster.selectors import (
    EVERYTHING,
    NOTHING,
    FieldRequirement,
    FieldSelector,
    NodeSelector,
    Operator,
    Requirement,
    Selector,
    SelectorError,
    from_label_selector,
    from_labels,
    parse,
    parse_fields,
)
from tests.support.tables import read_table

Case = dict[str, Any]
TABLES: dict[str, list[Case]] = read_table(Path(__file__).parent / "selectors.yaml")

words = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,5}[A-Za-z0-9])?", fullmatch=True)
keys = st.builds(str.__add__, st.sampled_from(("", "example.com/", "a.b-c/")), words)
values = st.just("") | words
numbers = st.integers(0, 2**63 - 1).map(str)
sets = st.frozensets(values, min_size=1, max_size=3)
label_maps = st.dictionaries(keys | st.sampled_from("ab"), values | numbers, max_size=4)
requirements = st.one_of(
    st.builds(Requirement, keys, st.sampled_from((Operator.IN, Operator.NOT_IN)), sets),
    st.builds(Requirement, keys, st.sampled_from((Operator.EXISTS, Operator.DOES_NOT_EXIST))),
    st.builds(
        Requirement,
        keys,
        st.sampled_from((Operator.GT, Operator.LT)),
        numbers.map(lambda number: frozenset({number})),
    ),
)
selectors = st.lists(requirements, max_size=4).map(Selector.of)


def label_selector(wire: Case) -> LabelSelector:
    return msgspec.convert(wire, LabelSelector)


def node_selector(terms: list[Case] | None) -> NodeSelector:
    return NodeSelector.from_wire(msgspec.convert({"nodeSelectorTerms": terms}, WireNodeSelector))


def selected(selector: Selector | FieldSelector, case: Case) -> tuple[list[bool], list[bool]]:
    return [selector.matches(m) for m in case["selects"]], [
        selector.matches(m) for m in case["leaves"]
    ]


def expected(case: Case) -> tuple[list[bool], list[bool]]:
    return [True] * len(case["selects"]), [False] * len(case["leaves"])


def is_sound(read: Callable[[str], Selector | FieldSelector], text: str) -> bool:
    """Tell whether a text is read in a way that lasts, or refused with a place in it."""
    try:
        found = read(text)
    except SelectorError as error:
        return error.position is not None and 0 <= error.position <= len(text)
    return read(str(found)) == found


@pytest.mark.parametrize("case", TABLES["text"], ids=lambda case: case["text"])
def test_text_selects(case: Case) -> None:
    assert selected(parse(case["text"]), case) == expected(case)


@pytest.mark.parametrize("case", TABLES["refused_text"], ids=lambda case: case["text"])
def test_wrong_text_is_refused_with_the_place(case: Case) -> None:
    with pytest.raises(SelectorError) as caught:
        parse(case["text"])
    assert caught.value.position == case["position"]
    assert str(caught.value).endswith(f"(at character {case['position'] + 1})")


@pytest.mark.parametrize("case", TABLES["objects"], ids=lambda case: str(case["selector"]))
def test_objects_select(case: Case) -> None:
    assert selected(from_label_selector(label_selector(case["selector"])), case) == expected(case)


@pytest.mark.parametrize("wire", TABLES["refused_objects"], ids=str)
def test_wrong_objects_are_refused(wire: Case) -> None:
    with pytest.raises(SelectorError):
        from_label_selector(label_selector(wire))


@pytest.mark.parametrize("case", TABLES["fields"], ids=lambda case: case["text"])
def test_fields_select(case: Case) -> None:
    assert selected(parse_fields(case["text"]), case) == expected(case)


@pytest.mark.parametrize("case", TABLES["refused_fields"], ids=lambda case: case["text"])
def test_wrong_fields_are_refused_with_the_place(case: Case) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_fields(case["text"])
    assert caught.value.position == case["position"]


@pytest.mark.parametrize("case", TABLES["nodes"], ids=lambda case: str(case["terms"]))
def test_node_terms_select(case: Case) -> None:
    selector = node_selector(case["terms"])
    for wanted, nodes in ((True, case["selects"]), (False, case["leaves"])):
        for node in nodes:
            assert selector.matches(node.get("labels", {}), node.get("name", "n")) is wanted, node
    assert not selector.errors


@pytest.mark.parametrize("term", TABLES["wrong_node_terms"], ids=str)
def test_a_wrong_node_term_selects_nothing_and_leaves_the_others_alone(term: Case) -> None:
    other: Case = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    selector = node_selector([term, other])
    assert not selector.matches({"a": "7"}, "n1")
    assert selector.matches({"a": "7", "zone": "z"}, "n1")
    assert len(selector.errors) == 1


def test_a_single_node_term_is_a_selector_of_its_own() -> None:
    wire = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    assert NodeSelector.from_term(msgspec.convert(wire, NodeSelectorTerm)) == node_selector([wire])


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert from_label_selector(None) == NOTHING
    assert not NOTHING.matches({})
    assert not NOTHING.matches({"a": "b"})
    assert from_label_selector(LabelSelector()) == EVERYTHING == parse("") == from_labels(None)
    assert EVERYTHING.matches({})


def test_nothing_stays_nothing_whatever_is_added() -> None:
    assert NOTHING.plus(Requirement("a", Operator.EXISTS)) == NOTHING
    assert NOTHING != EVERYTHING


def test_a_plain_map_is_taken_as_it_is() -> None:
    assert from_labels({"not a key!": "not a value!"}).matches({"not a key!": "not a value!"})
    assert not from_labels({"a": "b", "c": "d"}).matches({"a": "b"})


def test_equal_meanings_are_equal_values() -> None:
    one = parse("c,a in (x,y),b=z,b=z")
    other = from_label_selector(
        label_selector(
            {
                "matchLabels": {"b": "z"},
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["y", "x", "x"]},
                    {"key": "c", "operator": "Exists"},
                ],
            }
        )
    )
    assert one == other
    assert len({one, other}) == 1


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        ("a" * 63, True),
        ("a" * 64, False),
        ("b" * 253 + "/a", True),
        ("b" * 254 + "/a", False),
        ("a..b/c", False),
        ("a_b/c", False),
        ("a_b", True),
        ("a-", False),
    ],
    ids=lambda key: str(key)[-8:],
)
def test_keys_are_checked_as_the_api_server_does(key: str, valid: bool) -> None:
    if valid:
        assert parse(key).matches({key: ""})
    else:
        with pytest.raises(SelectorError, match="cannot be the name of a label"):
            parse(key)


@pytest.mark.parametrize(("length", "valid"), [(63, True), (64, False)])
def test_values_hold_63_characters(length: int, valid: bool) -> None:
    if valid:
        assert parse("a=" + "b" * length).matches({"a": "b" * length})
    else:
        with pytest.raises(SelectorError, match="cannot be the value of a label"):
            parse("a=" + "b" * length)


@given(selectors)
def test_text_reads_back_as_the_same_selector(selector: Selector) -> None:
    assert parse(str(selector)) == selector
    assert hash(parse(str(selector))) == hash(selector)


@given(selectors, label_maps)
def test_a_selector_demands_all_of_its_requirements(
    selector: Selector, labels: dict[str, str]
) -> None:
    assert selector.matches(labels) is all(r.matches(labels) for r in selector.requirements)


@given(selectors, requirements, label_maps)
def test_adding_a_requirement_narrows(
    selector: Selector, extra: Requirement, labels: dict[str, str]
) -> None:
    both = selector.matches(labels) and extra.matches(labels)
    assert selector.plus(extra).matches(labels) is both


@given(keys, sets, label_maps)
def test_not_in_is_the_opposite_of_in_and_holds_without_the_label(
    key: str, chosen: frozenset[str], labels: dict[str, str]
) -> None:
    within = Requirement(key, Operator.IN, chosen)
    without = Requirement(key, Operator.NOT_IN, chosen)
    assert without.matches(labels) is not within.matches(labels)
    assert without.matches({k: v for k, v in labels.items() if k != key})


@given(keys, st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_comparisons_are_of_numbers(key: str, bound: int, value: int) -> None:
    labels = {key: str(value)}
    assert parse(f"{key}>{bound}").matches(labels) is (value > bound)
    assert parse(f"{key}<{bound}").matches(labels) is (value < bound)


@given(st.text("ab=!<>(), \tin-/5") | st.text())
def test_any_text_is_a_selector_or_refused_with_a_place(text: str) -> None:
    assert is_sound(parse, text)


@given(
    st.lists(
        st.builds(
            FieldRequirement,
            st.sampled_from(("metadata.name", "status.phase", "spec.nodeName")),
            st.text(",=\\ab ") | st.text(),
            st.booleans(),
        )
    )
)
def test_field_text_reads_back_as_the_same_selector(found: list[FieldRequirement]) -> None:
    selector = FieldSelector.of(found)
    assert parse_fields(str(selector)) == selector


@given(st.text("ab=!,\\ "))
def test_any_text_is_a_field_selector_or_refused_with_a_place(text: str) -> None:
    assert is_sound(parse_fields, text)
