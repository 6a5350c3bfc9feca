# SPDX-License-Identifier: Apache-2.0
"""Evicts one pod through the Eviction API; every response is a value.

The uid comes from the Migration and is never read again: the replacement of a StatefulSet's
pod has the same name, and an eviction that is repeated with its uid would kill it. Each
attempt reads the pod first; one that is gone, terminating or replaced by another is no error:
there is nothing left to evict. The pod's own grace period holds; ours may only lengthen it.

Whether the eviction must be stopped is asked last of all: reading takes time, in which this
process may have lost its Lease, or an administrator may have paused moves.

The responses are those of pkg/registry/core/pod/storage/eviction.go of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from common.cluster.records import FINISHED_PHASES
from common.kube.api import KubeApi
from common.kube.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
)
from common.kube.resources import PODS
from common.null_json import UNDECODABLE

DEFAULT_GRACE_S: Final = 30
"""DefaultTerminationGracePeriodSeconds (k8s.io/api/core/v1/types.go)."""
_BUDGET_CAUSE: Final = "DisruptionBudget"
"""policyv1.DisruptionBudgetCause: only a PDB's 429 has it, API throttling does not."""
_SEVERAL_BUDGETS: Final = "more than one PodDisruptionBudget"


class Result(StrEnum):
    """How an attempt ended."""

    ACCEPTED = "accepted"
    GONE = "gone"
    """There is nothing to evict: the pod is gone, terminating, or another has its name."""
    BUDGET = "budget"
    """A PodDisruptionBudget does not allow it now; not a failed attempt."""
    THROTTLED = "throttled"
    """The API server limits requests."""
    THERE = "there"
    """The pod was only checked, and exists."""
    NOT_SENT = "not_sent"
    """The pod could not be read, or the eviction was stopped: nothing was requested."""
    FAILED = "failed"
    """An attempt that may be repeated, with the same uid."""
    UNSURE = "unsure"
    """Unknown whether the attempt failed: it does not count until the pod is read."""
    SEVERAL = "several"
    """More than one PodDisruptionBudget covers the pod, which the API does not support."""
    REFUSED = "refused"
    """It would be refused again."""


class Answer(msgspec.Struct, frozen=True):
    """The result of one attempt, with the API server's message."""

    result: Result
    message: str
    retry_s: float | None = None


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly which pod to evict."""

    namespace: str
    name: str
    uid: str
    grace_s: float | None = None
    """The shortest grace period wanted; None leaves the pod's own."""
    finished: bool = False
    """Whether the pod has ended, as it must have if it is removed for that, and must not else."""


Stopped = Callable[[], str | None]
"""Returns why nothing may be sent after all."""


class EvictionDriver(Protocol):
    """The one way in which pods are made to leave."""

    async def evict(self, victim: Victim, stopped: Stopped) -> Answer:
        """Try once, unless `stopped`; never raises for failures of the server or network."""
        ...

    async def check(self, victim: Victim) -> Answer:
        """Tell whether the pod is gone, without requesting anything."""
        ...


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    termination_grace_period_seconds: int | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class LivePod(msgspec.Struct):
    """A pod as the API server has it now, not as a watch showed it."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def terminating(self) -> bool:
        """The pod was asked to stop."""
        return self.metadata.deletion_timestamp is not None

    @property
    def finished(self) -> bool:
        """The pod has run to its end."""
        return self.status.phase in FINISHED_PHASES


async def read_pod(client: KubeApi, namespace: str, name: str) -> LivePod | None:
    """Read the pod of this name from the API server; None if there is none."""
    path = PODS.path(namespace=namespace, name=name)
    try:
        return msgspec.json.decode(await client.get(path), type=LivePod)
    except NotFound:
        return None


_GONE: Final = Answer(Result.GONE, "the pod is gone")


class ApiEviction:
    """Evicts through the Eviction API."""

    def __init__(self, client: KubeApi) -> None:
        self._client = client

    async def evict(self, victim: Victim, stopped: Stopped) -> Answer:
        """Read the pod and request its eviction if it is still the same one."""
        found = await self._find(victim)
        if isinstance(found, Answer):
            return found
        if (why := stopped()) is not None:
            return Answer(Result.NOT_SENT, why)
        return await self._request(victim, _body(victim, found))

    async def check(self, victim: Victim) -> Answer:
        """Read the pod and leave it alone."""
        found = await self._find(victim)
        return found if isinstance(found, Answer) else Answer(Result.THERE, "the pod exists")

    async def _find(self, victim: Victim) -> LivePod | Answer:
        """Return the pod if it can be evicted, or the answer that replaces an attempt."""
        try:
            pod = await self._read(victim)
        except (KubeError, *UNDECODABLE) as error:
            return _not_sent(error)
        gone = _gone(pod, victim)
        if gone is not None or pod is None:
            return gone or _GONE
        # A finished pod would be deleted at once, without any PDB (eviction.go, canIgnorePDB).
        if pod.finished and not victim.finished:
            return Answer(Result.REFUSED, f"the pod has finished ({pod.status.phase})")
        if victim.finished and not pod.finished:
            return Answer(Result.REFUSED, f"the pod has not finished ({pod.status.phase})")
        return pod

    async def _read(self, victim: Victim) -> LivePod | None:
        return await read_pod(self._client, victim.namespace, victim.name)

    async def _request(self, victim: Victim, body: dict[str, Any]) -> Answer:
        try:
            await self._client.create(
                PODS, body, namespace=victim.namespace, name=victim.name, subresource="eviction"
            )
        except TooManyRequests as error:
            return _too_many(error)
        except KubeError as error:
            return await self._after_error(victim, error)
        return Answer(Result.ACCEPTED, "the Eviction API accepted it")

    async def _after_error(self, victim: Victim, error: KubeError) -> Answer:
        """Tell from the pod what an unclear or missing response means."""
        failed = _failed(error)
        try:
            gone = _gone(await self._read(victim), victim)
        except (KubeError, *UNDECODABLE):
            # The next attempt reads the pod again, before anything else.
            unsure = failed.result is Result.FAILED
            return msgspec.structs.replace(failed, result=Result.UNSURE) if unsure else failed
        return gone or failed


def _gone(pod: LivePod | None, victim: Victim) -> Answer | None:
    if pod is None:
        return _GONE
    if pod.metadata.uid != victim.uid:
        return Answer(Result.GONE, "the pod is gone, another one has its name")
    if pod.terminating:
        return Answer(Result.GONE, "the pod is terminating")
    return None


def _body(victim: Victim, pod: LivePod) -> dict[str, Any]:
    options: dict[str, Any] = {"preconditions": {"uid": victim.uid}}
    own = pod.spec.termination_grace_period_seconds
    own_s = DEFAULT_GRACE_S if own is None else own
    if victim.grace_s is not None and victim.grace_s > own_s:
        options["gracePeriodSeconds"] = int(victim.grace_s)
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": options,
    }


def _not_sent(error: Exception) -> Answer:
    if isinstance(error, TooManyRequests):
        return Answer(Result.THROTTLED, str(error), error.retry_after_s)
    if isinstance(error, (Forbidden, BadRequest)):
        return Answer(Result.REFUSED, str(error))
    return Answer(Result.NOT_SENT, str(error))


def _too_many(error: TooManyRequests) -> Answer:
    if not error.has_cause(_BUDGET_CAUSE):
        return Answer(Result.THROTTLED, error.message, error.retry_after_s)
    message = next((c.message for c in error.causes if c.reason == _BUDGET_CAUSE), "")
    return Answer(Result.BUDGET, message or error.message, error.retry_after_s)


def _failed(error: KubeError) -> Answer:
    message = str(error)
    retry_s = error.retry_after_s if isinstance(error, ApiError) else None
    # A conflict while our uid is alive is one of versions: the PDB's or the pod's.
    if isinstance(error, Conflict):
        return Answer(Result.FAILED, message, retry_s)
    # A 500 whose message is all that tells it from other internal errors (eviction.go).
    if _SEVERAL_BUDGETS in message:
        return Answer(Result.SEVERAL, message)
    if isinstance(error, (BadRequest, Invalid)):
        return Answer(Result.REFUSED, message)
    return Answer(Result.FAILED, message, retry_s)
