# SPDX-License-Identifier: Apache-2.0
"""Long lists of pods are read in pieces, with the same result as entry by entry."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.checkpoint import no_checkpoint
from common.usage.columns import UsageColumns
from common.usage.list_pieces import PIECE_BYTES, list_pieces
from common.usage.metrics_server import read_pod, read_pods
from common.usage.plain_numbers import parsed
from common.usage.source import Usage

STAMPS = ("2027-01-15T08:00:00Z", "2027-01-15T08:00:09Z", "2027-01-15T08:00:00+01:00")
AMOUNTS = st.one_of(
    st.integers(0, 10**13).map(lambda number: f"{number}n"),
    st.sampled_from(("0", "5m", "7u", "1", "0.5", "1e3", "007n", "1n,2n", "nn", "n", "", "-1n")),
    st.sampled_from(("9" * 19 + "n", "١n", None, 3, 1.5)),
)
MEMORY = st.one_of(
    st.integers(0, 10**13).map(lambda number: f"{number}Ki"),
    st.sampled_from(("0", "12Mi", "2Gi", "1.5Ki", "Ki", "1Ki2Ki", "1iK", "iKi", "9" * 20 + "Ki")),
)
CONTAINERS = st.lists(st.fixed_dictionaries({"cpu": AMOUNTS, "memory": MEMORY}), max_size=3)
PODS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(("a", "b", 'quoted "},{"metadata":', "ü", None)),
        "timestamp": st.sampled_from((*STAMPS, "yesterday", None)),
        "window": st.sampled_from(("15s", "1m0.5s", "10.052s", "soon")),
        "containers": CONTAINERS,
    }
)


def item(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": given["name"], "namespace": "shop", "labels": {"app": "web"}},
        "timestamp": given["timestamp"],
        "window": given["window"],
        "containers": [{"name": "app", "usage": usage} for usage in given["containers"]],
    }


def listed(items: list[Any], **more: Any) -> bytes:
    head = {"kind": "PodMetricsList", "metadata": {}, "items": items, **more}
    return json.dumps(head, separators=(",", ":")).encode() + b"\n"


def plain(number: int) -> dict[str, Any]:
    usage = {"cpu": f"{number}n", "memory": "1Ki"}
    given = {"name": f"web-{number}", "timestamp": STAMPS[0], "window": "15s"}
    return item({**given, "containers": [usage]})


def one_by_one(items: list[Any]) -> tuple[dict[str, Usage], int]:
    found, wrong = {}, 0
    for each in items:
        try:
            key, usage = read_pod(msgspec.Raw(json.dumps(each).encode()))
            found[key] = usage
        except (ValueError, ArithmeticError):
            wrong += 1
    return found, wrong


@given(st.lists(PODS, max_size=8))
def test_pieces_read_what_single_entries_read(given: list[dict[str, Any]]) -> None:
    items = [item(each) for each in given]

    found, errors = read_pods(listed(items), no_checkpoint)

    assert (dict(found), len(errors)) == one_by_one(items)


def test_a_long_list_is_read_in_pieces() -> None:
    items = [plain(number) for number in range(2_000)]
    pauses: list[None] = []

    found, errors = read_pods(listed(items), lambda: pauses.append(None))

    assert (dict(found), len(errors)) == one_by_one(items)
    assert len(pauses) == len(list(list_pieces(listed(items)))) > 2
    assert max(map(len, list_pieces(listed(items)))) < 2 * PIECE_BYTES


def test_one_broken_entry_does_not_cost_the_others() -> None:
    items = [plain(number) for number in range(2_000)]
    items[700]["timestamp"] = "yesterday"

    found, errors = read_pods(listed(items), no_checkpoint)

    assert len(found) == 1_999
    assert [error.partition(":")[0] for error in errors] == ["shop/web-700"]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"metadata2": {}}, id="something after the items"),
        pytest.param({"remaining": {"items": []}}, id="a second list"),
    ],
)
def test_a_list_of_another_form_is_read_as_a_whole(more: dict[str, Any]) -> None:
    items = [plain(number) for number in range(2_000)]
    with pytest.raises(ValueError, match="not a list"):
        list(list_pieces(listed(items, **more)))

    found, _ = read_pods(listed(items, **more), no_checkpoint)

    assert len(found) == 2_000


def test_a_cut_inside_an_entry_is_noticed() -> None:
    inner = [{"name": "x", "usage": {"cpu": "1n", "memory": "1Ki"}}, {"metadata": {}}]
    items = [{**plain(number), "more": inner} for number in range(2_000)]

    found, errors = read_pods(listed(items), no_checkpoint)

    assert (dict(found), len(errors)) == one_by_one(items)


def test_what_is_no_json_fails_the_round() -> None:
    text = listed([plain(number) for number in range(2_000)])
    for broken in (text[: len(text) // 2], text[:-3], text.replace(b"web-700", b'web"700')):
        with pytest.raises(ValueError, match=r".+"):
            read_pods(broken, no_checkpoint)


@pytest.mark.parametrize("items", [[], None])
def test_a_list_may_be_empty(items: Any) -> None:
    found, errors = read_pods(listed(items), no_checkpoint)
    assert (len(found), errors) == (0, [])


@given(st.lists(AMOUNTS.filter(lambda amount: isinstance(amount, str)).map(str), max_size=6))
def test_numbers_are_parsed_together_as_one_by_one(texts: list[str]) -> None:
    def exact(text: str) -> float:
        digits = text.removesuffix("n")
        known = digits != text and digits.isascii() and digits.isdigit()
        return int(digits) / 1e6 if known else -1.0

    assert parsed(texts, "n", lambda number: number / 1e6, exact) == list(map(exact, texts))


def test_columns_are_a_mapping() -> None:
    usages = {"shop/a": Usage(1.5, 2.0, 30.0, 15.0), "shop/b": Usage(0.0, 1.0, 31.0, 10.0)}

    columns = UsageColumns.of(usages)

    assert columns == usages
    assert "shop/c" not in columns
    assert UsageColumns.of(columns) is columns
