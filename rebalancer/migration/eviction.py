"""Asks for one pod to be evicted; every answer is a value.

The uid comes from the Migration and is never read anew: the replacement of a StatefulSet's
pod has the same name, and an eviction that is repeated with its uid would kill it. Before
each attempt the pod is looked at; one that is gone, going, or another is no error but the
end of the matter. The pod's own grace holds; ours may only lengthen it.

Whether anybody wants it stopped is asked last of all: looking takes time, and meanwhile
another may lead, or somebody may have paused.

The answers are those of pkg/registry/core/pod/storage/eviction.go of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec
import structlog

from common.cluster.records import FINISHED_PHASES
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
from common.kube.resources import PODS, Resource
from common.null_json import UNDECODABLE

log: structlog.stdlib.BoundLogger = structlog.get_logger()

DEFAULT_GRACE_S: Final = 30
_BUDGET: Final = "DisruptionBudget"
_SEVERAL: Final = "more than one PodDisruptionBudget"


class Result(StrEnum):
    """What came of an attempt."""

    ACCEPTED = "accepted"
    GONE = "gone"
    """There is nothing to evict: the pod is gone, going, or another has its name."""
    BUDGET = "budget"
    """A budget does not allow it now; nothing was tried in vain."""
    THROTTLED = "throttled"
    """The API server has no time."""
    THERE = "there"
    """It was only looked at, and is there."""
    NOT_SENT = "not_sent"
    """The pod could not be looked at, or somebody has stopped us: nothing was asked."""
    FAILED = "failed"
    """An attempt that may be repeated, with the same uid."""
    UNSURE = "unsure"
    """Nobody could tell whether the attempt failed: it is none until the pod is seen."""
    SEVERAL = "several"
    """More than one budget covers the pod, which the API server does not like."""
    REFUSED = "refused"
    """It would be refused again."""


class Answer(msgspec.Struct, frozen=True):
    """The result of one attempt, with the API's words."""

    result: Result
    words: str
    retry_s: float | None = None


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly which pod is meant."""

    namespace: str
    name: str
    uid: str
    grace_s: float | None = None
    """The grace that is wanted at least; None leaves the pod's own."""


Stopped = Callable[[], str | None]
"""Says why nothing may be sent after all."""


class EvictionDriver(Protocol):
    """The one way in which pods are made to leave."""

    async def evict(self, victim: Victim, stopped: Stopped) -> Answer:
        """Try once, unless it is `stopped`; never raises for what a server or network can do."""
        ...

    async def look(self, victim: Victim) -> Answer:
        """Tell whether it is gone, without asking for anything."""
        ...


class EvictionClient(Protocol):
    """The part of `KubeClient` that evicting needs."""

    async def get(self, path: str) -> bytes: ...

    async def create(
        self, resource: Resource, body: Any, *, namespace: str, name: str, subresource: str
    ) -> bytes: ...


_GONE: Final = Answer(Result.GONE, "the pod is gone")


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    termination_grace_period_seconds: int | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class ApiEviction:
    """Evicts through the Eviction API."""

    def __init__(self, client: EvictionClient) -> None:
        self._client = client

    async def evict(self, victim: Victim, stopped: Stopped) -> Answer:
        """Look at the pod and ask for its eviction if it is still the one."""
        seen = await self._see(victim)
        if isinstance(seen, Answer):
            return seen
        if (why := stopped()) is not None:
            return Answer(Result.NOT_SENT, why)
        return await self._ask(victim, _body(victim, seen))

    async def look(self, victim: Victim) -> Answer:
        """Look at the pod and leave it alone."""
        seen = await self._see(victim)
        return seen if isinstance(seen, Answer) else Answer(Result.THERE, "the pod is there")

    async def _see(self, victim: Victim) -> _Pod | Answer:
        """Return the pod if it can be evicted, or what there is to say instead."""
        try:
            pod = await self._look(victim)
        except (KubeError, *UNDECODABLE) as error:
            return _not_sent(error)
        over = _over(pod, victim)
        if over is not None or pod is None:
            return over or _GONE
        if pod.status.phase in FINISHED_PHASES:
            return Answer(Result.REFUSED, f"the pod has ended ({pod.status.phase})")
        return pod

    async def _look(self, victim: Victim) -> _Pod | None:
        path = PODS.path(namespace=victim.namespace, name=victim.name)
        try:
            return msgspec.json.decode(await self._client.get(path), type=_Pod)
        except NotFound:
            return None

    async def _ask(self, victim: Victim, body: dict[str, Any]) -> Answer:
        where = {"namespace": victim.namespace, "name": victim.name}
        try:
            await self._client.create(PODS, body, **where, subresource="eviction")
        except TooManyRequests as error:
            return _too_many(error)
        except KubeError as error:
            return await self._after(victim, error)
        return Answer(Result.ACCEPTED, "the Eviction API took it")

    async def _after(self, victim: Victim, error: KubeError) -> Answer:
        """Tell from the pod what an answer means that says too little, or never came."""
        failed = _failed(error)
        try:
            over = _over(await self._look(victim), victim)
        except (KubeError, *UNDECODABLE):
            # The next attempt looks again, before anything else.
            unsure = failed.result is Result.FAILED
            return msgspec.structs.replace(failed, result=Result.UNSURE) if unsure else failed
        return over or failed


def _over(pod: _Pod | None, victim: Victim) -> Answer | None:
    if pod is None:
        return _GONE
    if pod.metadata.uid != victim.uid:
        return Answer(Result.GONE, "the pod is gone, another one has its name")
    if pod.metadata.deletion_timestamp is not None:
        return Answer(Result.GONE, "the pod is on its way out")
    return None


def _body(victim: Victim, pod: _Pod) -> dict[str, Any]:
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
    if not error.has_cause(_BUDGET):
        return Answer(Result.THROTTLED, error.message, error.retry_after_s)
    said = next((c.message for c in error.causes if c.reason == _BUDGET), "")
    return Answer(Result.BUDGET, said or error.message, error.retry_after_s)


def _failed(error: KubeError) -> Answer:
    words = str(error)
    retry_s = error.retry_after_s if isinstance(error, ApiError) else None
    # A conflict with our uid alive is one of versions: the budget's or the pod's.
    if isinstance(error, Conflict):
        return Answer(Result.FAILED, words, retry_s)
    if _SEVERAL in words:
        return Answer(Result.SEVERAL, words)
    if isinstance(error, (BadRequest, Invalid)):
        return Answer(Result.REFUSED, words)
    return Answer(Result.FAILED, words, retry_s)
