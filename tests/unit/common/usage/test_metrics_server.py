# SPDX-License-Identifier: Apache-2.0
"""Reading entries of the metrics API."""

from __future__ import annotations

import json
from contextlib import suppress
from math import isfinite
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.usage.metrics_server import read_node, read_pod, span_s

STAMP = "2027-01-15T08:00:00Z"
STAMP_S = 1_800_000_000.0


def raw(**changes: Any) -> msgspec.Raw:
    item = {
        "metadata": {"name": "x", "namespace": "shop"},
        "timestamp": STAMP,
        "window": "15.5s",
        "usage": {"cpu": "156340123n", "memory": "2000Ki"},
        "containers": [{"name": "app", "usage": {"cpu": "250m", "memory": "1Mi"}}],
        **changes,
    }
    return msgspec.Raw(json.dumps(item).encode())


def test_a_node_is_read_with_the_end_and_the_length_of_its_window() -> None:
    name, usage = read_node(raw())

    assert name == "x"
    assert usage.cpu_milli == 156.340123
    assert usage.mem_bytes == 2000 * 1024
    assert (usage.start_s, usage.end_s) == (STAMP_S - 15.5, STAMP_S)


def test_a_pod_uses_what_its_containers_use_together() -> None:
    containers = [
        {"name": "app", "usage": {"cpu": "250m", "memory": "1Mi"}},
        {"name": "proxy", "usage": {"cpu": "500000n", "memory": "24Ki"}},
    ]
    key, usage = read_pod(raw(containers=containers))

    assert key == "shop/x"
    assert usage.cpu_milli == 250.5
    assert usage.mem_bytes == 1024 * 1024 + 24 * 1024


@pytest.mark.parametrize(
    ("cpu", "memory", "cpu_milli", "mem_bytes"),
    [
        ("0", "0", 0.0, 0.0),
        ("1", "1Gi", 1000.0, 1024.0**3),
        ("12345678901234567890n", "1Ki", 12345678901234.568, 1024.0),
        ("7u", "5", 1.0, 5.0),
        ("0.5", "1500m", 500.0, 2.0),
        ("999999n", "1e3", 0.999999, 1000.0),
    ],
)
def test_every_quantity_is_understood(
    cpu: str, memory: str, cpu_milli: float, mem_bytes: float
) -> None:
    _, usage = read_node(raw(usage={"cpu": cpu, "memory": memory}))

    assert usage.cpu_milli == pytest.approx(cpu_milli)
    assert usage.mem_bytes == mem_bytes


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"usage": {"cpu": "1"}}, id="no memory"),
        pytest.param({"usage": {"memory": "1"}}, id="no cpu"),
        pytest.param({"usage": {"cpu": "many", "memory": "1"}}, id="not a quantity"),
        pytest.param({"usage": {"cpu": "²n", "memory": "1"}}, id="a digit that is none"),
        pytest.param({"usage": {"cpu": "١n", "memory": "1"}}, id="a digit of another script"),
        pytest.param({"window": "9" * 70 + "s"}, id="an endless window"),
        pytest.param({"usage": None}, id="null"),
        pytest.param({"timestamp": None}, id="no time"),
        pytest.param({"timestamp": "yesterday"}, id="not a time"),
        pytest.param({"timestamp": "2027-01-15T08:00:00"}, id="a time without a zone"),
        pytest.param({"window": ""}, id="no window"),
        pytest.param({"window": "soon"}, id="not a window"),
        pytest.param({"window": "-15s"}, id="a negative window"),
        pytest.param({"window": "15"}, id="a window without a unit"),
        pytest.param({"metadata": {}}, id="no name"),
    ],
)
def test_an_entry_that_makes_no_sense_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_node(raw(**changes))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"cpu": 1, "memory": 1.5}, (1000.0, 2.0)),
        ({"cpu": 0.25, "memory": "1"}, (250.0, 1.0)),
        ({"cpu": "9" * 400 + "n", "memory": "1"}, (None, 1.0)),
        ({"cpu": "1", "memory": "9" * 400 + "Ki"}, (1000.0, 2.0**63)),
        ({"cpu": "1e400", "memory": "1e-400"}, (None, 1.0)),
    ],
)
def test_amounts_of_any_size_are_figures(usage: dict[str, Any], expected: Any) -> None:
    _, found = read_node(raw(usage=usage))
    assert isfinite(found.cpu_milli)
    assert expected[0] in (None, found.cpu_milli)
    assert found.mem_bytes == expected[1]


def test_a_pod_without_containers_was_not_measured() -> None:
    with pytest.raises(ValueError, match="length"):
        read_pod(raw(containers=[]))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15.0),
        ("1m0s", 60.0),
        ("1m0.5s", 60.5),
        ("1h2m3s", 3723.0),
        ("900ms", 0.9),
        ("30.123456789s", 30.123456789),
        ("0s", 0.0),
        ("5µs", 5e-6),
        ("1000ns", 1e-6),
    ],
)
def test_windows_are_go_durations(text: str, seconds: float) -> None:
    assert span_s(text) == pytest.approx(seconds)


@given(st.from_regex(r"([0-9]{1,4}(\.[0-9]{1,4})?(ns|us|µs|ms|s|m|h)){1,3}", fullmatch=True))
def test_every_go_duration_is_a_length_of_time(text: str) -> None:
    assert span_s(text) >= 0.0


@given(st.text(alphabet="0123456789.hmsnuµ+- eE", max_size=12))
def test_anything_else_is_an_error_in_words(text: str) -> None:
    with suppress(ValueError):
        assert span_s(text) >= 0.0
    with pytest.raises(ValueError, match="is not a window"):
        span_s(text + "?")
