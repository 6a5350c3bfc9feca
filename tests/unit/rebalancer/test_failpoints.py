# SPDX-License-Identifier: Apache-2.0
"""Failpoints crash the process where a test wants it."""

from __future__ import annotations

import pytest

from rebalancer import failpoints


def test_a_failpoint_must_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="is not a failpoint"):
        failpoints.point("after-lunch")
    monkeypatch.setenv(failpoints.VARIABLE, "after-evict")
    failpoints.point("before-evict")
    assert len(set(failpoints.POINTS)) == len(failpoints.POINTS)


def test_a_failpoint_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setenv(failpoints.VARIABLE, "after-evict")
    failpoints.point("after-evict")
    assert codes == [failpoints.EXIT_CODE]
