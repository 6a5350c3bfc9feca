# SPDX-License-Identifier: Apache-2.0
"""What every answer of the Eviction API means, over a real socket.

The answers are those of pkg/registry/core/pod/storage/eviction.go of Kubernetes v1.36.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rebalancer.migration.eviction import Answer, ApiEviction, Result, Victim
from tests.support.clock import FakeClock
from tests.support.stands.scripted_api import (
    Exchange,
    ScriptedApi,
    Step,
    answer,
    client_of,
    status,
    status_object,
)

VICTIM = Victim(namespace="shop", name="db-0", uid="u-1")
BUDGET = {
    **status_object(429, "TooManyRequests", "Cannot evict pod as it would violate the budget."),
    "details": {"causes": [{"reason": "DisruptionBudget", "message": "db needs 2 and has 2"}]},
}
SEVERAL = (
    "This pod has more than one PodDisruptionBudget, "
    "which the eviction subresource does not support."
)
CONFLICT = status(409, "Conflict", "the UID in the precondition (u-1) does not match")


def pod(uid: str = "u-1", *, phase: str = "Running", **meta: Any) -> Step:
    body = {"metadata": {"uid": uid, **meta}, "status": {"phase": phase}}
    return answer(200, body)


async def reset(exchange: Exchange) -> None:
    exchange.reset()


ALIVE, NAMESAKE, GONE = pod(), pod("u-2"), status(404, "NotFound", "not found")
ENDING = pod(deletionTimestamp="2026-11-16T09:00:00Z")
YES = answer(201, {"kind": "Status", "status": "Success"})


@pytest.mark.parametrize(
    ("script", "result", "message"),
    [
        pytest.param([ALIVE, YES], Result.ACCEPTED, "accepted it", id="accepted"),
        pytest.param([GONE], Result.GONE, "is gone", id="gone"),
        pytest.param([NAMESAKE], Result.GONE, "another one has its name", id="namesake"),
        pytest.param([ENDING], Result.GONE, "is terminating", id="ending"),
        pytest.param([pod(phase="Failed")], Result.REFUSED, "has finished (Failed)", id="finished"),
        pytest.param([ALIVE, GONE, GONE], Result.GONE, "is gone", id="gone-meanwhile"),
        pytest.param([ALIVE, CONFLICT, NAMESAKE], Result.GONE, "another", id="conflict-of-uids"),
        pytest.param([ALIVE, CONFLICT, ENDING], Result.GONE, "terminating", id="conflict-ending"),
        pytest.param([ALIVE, CONFLICT, ALIVE], Result.FAILED, "UID", id="conflict-of-versions"),
        pytest.param([ALIVE, answer(429, BUDGET)], Result.BUDGET, "needs 2 and has 2", id="budget"),
        pytest.param(
            [ALIVE, status(429, "TooManyRequests", "slow down", headers={"Retry-After": "7"})],
            *(Result.THROTTLED, "slow down"),
            id="throttled",
        ),
        pytest.param([ALIVE, status(500, "", SEVERAL), ALIVE], Result.SEVERAL, SEVERAL, id="pdbs"),
        pytest.param(
            [ALIVE, status(500, "InternalError", "webhook"), ALIVE],
            *(Result.FAILED, "webhook"),
            id="500",
        ),
        pytest.param(
            [ALIVE, status(504, "Timeout", "couldn't update PodDisruptionBudget"), ALIVE],
            *(Result.FAILED, "couldn't update"),
            id="504",
        ),
        pytest.param(
            [ALIVE, status(403, "Forbidden", "DisruptedPods map too big"), ALIVE],
            *(Result.FAILED, "too big"),
            id="403",
        ),
        pytest.param(
            [ALIVE, status(400, "BadRequest", "no"), ALIVE], Result.REFUSED, "no", id="400"
        ),
        pytest.param([ALIVE, status(422, "Invalid", "no"), ALIVE], Result.REFUSED, "no", id="422"),
        pytest.param([ALIVE, reset, ENDING], Result.GONE, "terminating", id="lost-answer-done"),
        pytest.param([ALIVE, reset, ALIVE], Result.FAILED, "", id="lost-answer-not-done"),
        pytest.param([ALIVE, reset, reset], Result.UNSURE, "", id="lost-altogether"),
        pytest.param([ALIVE, status(400, "", "no"), reset], Result.REFUSED, "no", id="no-is-no"),
        pytest.param([reset], Result.NOT_SENT, "", id="cannot-look"),
        pytest.param([answer(200, b"<html>")], Result.NOT_SENT, "", id="cannot-read"),
        pytest.param(
            [status(429, "TooManyRequests", "busy", headers={"Retry-After": "3"})],
            *(Result.THROTTLED, "busy"),
            id="cannot-look-throttled",
        ),
        pytest.param(
            [status(403, "Forbidden", "no rights")], Result.REFUSED, "no rights", id="rbac"
        ),
    ],
)
async def test_every_answer_is_a_value(
    script: list[Step], result: Result, message: str, tmp_path: Path
) -> None:
    found, api = await evicted(script, tmp_path)
    assert found.result is result
    assert message in found.message
    posts = [request for request in api.requests if request.method == "POST"]
    assert len(posts) == (1 if len(script) > 1 else 0)
    for request in posts:
        sent = json.loads(request.body)
        assert sent["deleteOptions"] == {"preconditions": {"uid": "u-1"}}


async def test_a_throttling_server_sets_the_next_attempt(tmp_path: Path) -> None:
    busy = status(429, "TooManyRequests", "slow down", headers={"Retry-After": "7"})
    found, _ = await evicted([ALIVE, busy], tmp_path)
    assert found.retry_s == 7


@pytest.mark.parametrize(
    ("own_s", "wanted_s", "sent_s"),
    [(600, 30, None), (None, 20, None), (None, 30, None), (None, 45, 45), (10, 30, 30), (0, 5, 5)],
)
async def test_the_grace_of_a_pod_is_only_ever_lengthened(
    own_s: int | None, wanted_s: int, sent_s: int | None, tmp_path: Path
) -> None:
    spec = {} if own_s is None else {"terminationGracePeriodSeconds": own_s}
    shown = answer(200, {"metadata": {"uid": "u-1"}, "spec": spec})
    patient = Victim(namespace="shop", name="db-0", uid="u-1", grace_s=wanted_s)
    _, api = await evicted([shown, YES], tmp_path, patient)
    options = json.loads(api.requests[1].body)["deleteOptions"]
    assert options.get("gracePeriodSeconds") == sent_s


async def test_a_check_requests_nothing(tmp_path: Path) -> None:
    async with ScriptedApi(ALIVE, GONE) as api, client_of(api, tmp_path, FakeClock()) as client:
        driver = ApiEviction(client)
        assert (await driver.check(VICTIM)).result is Result.THERE
        assert (await driver.check(VICTIM)).result is Result.GONE
    assert {request.method for request in api.requests} == {"GET"}


async def test_an_eviction_stopped_while_the_pod_is_read_requests_nothing(tmp_path: Path) -> None:
    async with ScriptedApi(ALIVE) as api, client_of(api, tmp_path, FakeClock()) as client:
        found = await ApiEviction(client).evict(VICTIM, lambda: "Paused: paused is set")
    assert found == Answer(Result.NOT_SENT, "Paused: paused is set")
    assert [request.method for request in api.requests] == ["GET"]


async def evicted(
    script: list[Step], folder: Path, victim: Victim = VICTIM
) -> tuple[Answer, ScriptedApi]:
    async with ScriptedApi(*script) as api, client_of(api, folder, FakeClock()) as client:
        return await ApiEviction(client).evict(victim, lambda: None), api
