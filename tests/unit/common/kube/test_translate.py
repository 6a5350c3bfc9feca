# SPDX-License-Identifier: Apache-2.0
"""What servers and sockets say, in our words."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kube import errors
from common.kube.translate import parse_retry_after, shortened, status_error, transport_error

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "1.5"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "9" * 5000}, None),
        ({"Retry-After": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"Retry-After": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"Retry-After": "Fri, 99 Jan 2027 07:00:00 GMT"}, None),
        # The server's clock is an hour behind ours; what it means is half a minute.
        (
            {
                "Retry-After": "Fri, 15 Jan 2027 07:00:30 GMT",
                "Date": "Fri, 15 Jan 2027 07:00:00 GMT",
            },
            30.0,
        ),
    ],
)
def test_retry_after_is_a_number_or_a_date(
    headers: Mapping[str, str], seconds: float | None
) -> None:
    assert parse_retry_after(headers, NOW) == seconds


@given(st.text(), st.text())
def test_no_retry_after_is_strange_enough_to_raise(text: str, date: str) -> None:
    seconds = parse_retry_after({"Retry-After": text, "Date": date}, NOW)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
        (418, "Teapot", errors.ApiError),
    ],
)
def test_each_status_has_its_error(status: int, reason: str, kind: type[errors.ApiError]) -> None:
    error = status_error(status, _status(code=status, reason=reason, message="words"))
    assert type(error) is kind
    assert (error.status, error.reason, str(error)) == (status, reason, "words")


def test_the_causes_of_a_status_are_kept() -> None:
    causes = [{"reason": "DisruptionBudget", "message": "needs 2, has 2"}, {"field": "spec.x"}]
    error = status_error(429, _status(code=429, details={"causes": causes}))
    assert error.has_cause("DisruptionBudget")
    assert error.causes == (
        errors.Cause("DisruptionBudget", "needs 2, has 2"),
        errors.Cause(field="spec.x"),
    )


def test_a_status_may_ask_for_patience_itself() -> None:
    body = _status(code=429, details={"retryAfterSeconds": 10})
    assert status_error(429, body).retry_after_s == 10
    assert status_error(429, body, retry_after_s=3).retry_after_s == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html><head><style>p {}</style></head><p>Bad\n<b>gateway</b></html>", "Bad gateway"),
        (b"", "no explanation"),
        (b'{"kind": "Pod"}', '{"kind": "Pod"}'),
        (b'{"kind": "Status", "code": "five"}', '{"kind": "Status", "code": "five"}'),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_an_answer_that_is_no_status_is_quoted(body: bytes, words: str) -> None:
    error = status_error(502, body)
    assert type(error) is errors.ServerError
    assert str(error) == f"HTTP 502: {words}"


def test_long_answers_are_cut() -> None:
    assert len(str(status_error(500, b"x" * 100_000))) < 250


def test_deeply_nested_answers_are_survived() -> None:
    assert status_error(500, b"[" * 100_000).status == 500


@given(st.integers(400, 599), st.binary())
def test_no_answer_is_strange_enough_to_raise(status: int, body: bytes) -> None:
    assert "\n" not in str(status_error(status, body))


@given(st.text())
def test_shortened_text_is_one_line(text: str) -> None:
    assert len(shortened(text)) <= 200
    assert shortened(text).splitlines() in ([], [shortened(text)])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (20, "certificate signed by unknown authority: check certificate-authority"),
        (10, "certificate has expired"),
        (62, "certificate is for other names"),
    ],
)
def test_a_bad_certificate_says_what_to_check(code: int, words: str) -> None:
    error = ssl.SSLCertVerificationError("no")
    error.verify_code = code
    error.verify_message = "detail"
    found = transport_error(error, "https://x")
    assert type(found) is errors.Untrusted
    assert str(found).startswith(f"https://x: {words}")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (TimeoutError(), errors.TimedOut, "did not answer in time"),
        (ConnectionRefusedError(111, "x"), errors.Unreachable, "connection refused"),
        (ConnectionResetError(), errors.Unreachable, "connection reset"),
        (aiohttp.ServerDisconnectedError(), errors.Unreachable, "closed the connection"),
        (aiohttp.ClientPayloadError(), errors.Unreachable, "in the middle of an answer"),
        (aiohttp.ServerTimeoutError(), errors.TimedOut, "did not answer in time"),
        (aiohttp.InvalidURL("x"), errors.KubeconfigError, "not the address"),
        (OSError(101, "Network is unreachable"), errors.Unreachable, "Network is unreachable"),
        (ssl.SSLError(1, "[SSL] wrong version"), errors.Unreachable, "TLS failed"),
        (aiohttp.ClientError(), errors.Unreachable, "ClientError"),
    ],
)
def test_transport_errors_name_the_server(
    error: Exception, kind: type[errors.KubeError], words: str
) -> None:
    found = transport_error(error, "https://x:1")
    assert type(found) is kind
    assert "https://x:1" in str(found)
    assert words in str(found)


def _status(**said: Any) -> bytes:
    return json.dumps({"kind": "Status", **said}).encode()
