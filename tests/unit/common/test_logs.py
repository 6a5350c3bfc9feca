# SPDX-License-Identifier: Apache-2.0
"""Logs: one line per event, for people or machines, without secrets, and never in the way."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from common import logs
from tests.support.clock import FakeClock
from tests.support.restored_logs import restored_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with restored_logs():
        yield


def said(
    event: str = "pod evicted",
    *,
    fmt: logs.Format = "json",
    stream: io.StringIO | None = None,
    **keys: Any,
) -> str:
    """Return what one info event looks like."""
    target = io.StringIO() if stream is None else stream
    logs.configure(0, fmt, target, clock=FakeClock(now=1_800_000_000.5))
    structlog.get_logger().info(event, **keys)
    return target.getvalue()


def test_json_is_one_object_a_line_with_the_fixed_keys_first() -> None:
    line = said(pod="default/web-1", node="n1")
    assert line.endswith("}\n")
    assert list(json.loads(line).items()) == [
        ("ts", "2027-01-15T08:00:00.500Z"),
        ("level", "info"),
        ("event", "pod evicted"),
        ("pod", "default/web-1"),
        ("node", "n1"),
    ]


def test_text_reads_like_a_sentence() -> None:
    assert said(fmt="text", pod="default/web-1", why="too hot", plan={"a": 1}) == (
        "2027-01-15T08:00:00.500Z INFO    pod evicted "
        'pod=default/web-1 why="too hot" plan={"a": 1}\n'
    )


def test_text_is_coloured_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[32m" in said(fmt="text", stream=Terminal())
    assert "\x1b" not in said(fmt="text")


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in said(fmt="text", stream=Terminal())


def test_json_is_never_coloured() -> None:
    assert "\x1b" not in said(stream=Terminal())


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (0, ["ours info", "theirs warning"]),
        (1, ["ours debug", "ours info", "theirs warning"]),
        (2, ["ours debug", "ours info", "theirs info", "theirs warning"]),
        (3, ["ours debug", "ours info", "theirs debug", "theirs info", "theirs warning"]),
        (9, ["ours debug", "ours info", "theirs debug", "theirs info", "theirs warning"]),
    ],
)
def test_verbosity_opens_ours_before_the_libraries(verbosity: int, shown: list[str]) -> None:
    stream = io.StringIO()
    logs.configure(verbosity, "json", stream)
    ours, theirs = structlog.get_logger(), logging.getLogger("uvicorn.error")
    ours.debug("ours debug")
    ours.info("ours info")
    theirs.debug("theirs debug")
    theirs.info("theirs info")
    theirs.warning("theirs %s", "warning")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == shown


def test_libraries_come_out_of_the_same_pipeline() -> None:
    stream = io.StringIO()
    logs.configure(0, "json", stream)
    logging.getLogger("asyncio").error("slow %d", 3)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"], line["logger"]) == ("error", "slow 3", "asyncio")


def test_a_library_whose_arguments_do_not_fit_is_still_heard() -> None:
    stream = io.StringIO()
    logging.getLogger().handlers.clear()  # pytest's own would raise
    logs.configure(0, "json", stream)
    logging.getLogger("odd").log(35, "100% of %d", "many")
    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"]) == ("warning", "100% of %d")


def test_warnings_of_the_interpreter_become_lines() -> None:
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.configure(0, "json", stream)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert json.loads(stream.getvalue())["logger"] == "py.warnings"


def test_configuring_again_replaces_the_first_time() -> None:
    first, second = io.StringIO(), io.StringIO()
    log = structlog.get_logger()
    logs.configure(0, "json", first)
    log.info("one")
    logs.configure(0, "json", second)
    log.info("two")
    logging.getLogger("lib").warning("three")
    assert "two" not in first.getvalue()
    assert [json.loads(line)["event"] for line in second.getvalue().splitlines()] == [
        "two",
        "three",
    ]


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_exceptions_carry_their_traceback(fmt: logs.Format) -> None:
    stream = io.StringIO()
    logs.configure(0, fmt, stream)
    try:
        raise KeyError("gone")
    except KeyError:
        structlog.get_logger().exception("cycle failed")
    assert "Traceback (most recent call last)" in stream.getvalue()
    assert "KeyError: 'gone'" in stream.getvalue()


def test_an_error_as_a_value_says_its_class() -> None:
    assert json.loads(said(error=KeyError("gone")))["error"] == "KeyError: 'gone'"
    assert json.loads(said(error=TimeoutError()))["error"] == "TimeoutError"


def test_text_keeps_an_event_on_one_line() -> None:
    odd_key: dict[str, Any] = {"k\ney": 1}
    line = said("a\nb\x1b[2J", fmt="text", why="c\nd\u2028e", **odd_key)
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert "\u2028" not in line


@pytest.mark.parametrize(
    "value",
    [
        Unprintable(),
        {Unprintable(): 1},
        {("a", 1): object()},
        [Unprintable()],
        float("nan"),
        float("-inf"),
        10**5000,
        "\ud800",
        b"\xff",
        {1, 2},
        structlog,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("fmt", ["text", "json"])
def test_odd_values_cost_no_line(value: Any, fmt: logs.Format) -> None:
    line = said(fmt=fmt, odd=value)
    assert "pod evicted" in line
    line.encode()
    if fmt == "json":
        json.loads(line, parse_constant=pytest.fail)


def test_a_value_that_contains_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert len(said(odd=loop)) < 200


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    )
)
def test_any_value_stays_json_and_on_one_line(value: Any) -> None:
    line = said(odd=value)
    assert line.count("\n") == 1
    assert "odd" in json.loads(line, parse_constant=pytest.fail)


def test_a_closed_stream_stops_nobody() -> None:
    stream = io.StringIO()
    logs.configure(0, "json", stream)
    stream.close()
    structlog.get_logger().info("no one hears this")


TOKEN = "sUp3r-s3cret.Token_of-length"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzYSJ9.c2lnbmF0dXJl"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize("fmt", ["text", "json"])
@pytest.mark.parametrize(
    ("keys", "secret"),
    [
        ({"token": TOKEN}, TOKEN),
        ({"bearer_token": TOKEN}, TOKEN),
        ({"headers": {"Authorization": f"Bearer {TOKEN}"}}, TOKEN),
        ({"user": [{"client-key-data": TOKEN}]}, TOKEN),
        ({"error": f"refused with Bearer {TOKEN}"}, TOKEN),
        ({"error": "sent Authorization: Basic dTpw"}, "dTpw"),
        ({"error": ValueError(f"bad jwt {JWT}")}, JWT),
        ({"url": "https://me:hunter2@prom.example/api"}, "hunter2"),
        ({"file": KEY}, "MIIabc"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_secrets_are_masked(fmt: logs.Format, keys: dict[str, Any], secret: str) -> None:
    line = said(fmt=fmt, **keys)
    assert secret not in line
    assert logs.MASK in line


def test_secrets_in_a_traceback_are_masked() -> None:
    stream = io.StringIO()
    logs.configure(0, "text", stream)
    try:
        raise ValueError(f"Bearer {TOKEN}")
    except ValueError:
        structlog.get_logger().exception("refused")
    assert TOKEN not in stream.getvalue()


def test_words_about_secrets_are_left_alone() -> None:
    line = said(error="bearer authentication failed", bearerTokenFile="/var/run/token", token=None)
    assert logs.MASK not in line
