"""The Lease by which the rebalancer knows what this extender knows.

Nothing is evicted before every live extender has the intent, so the Lease says up to which
resourceVersion Migrations have been taken into the index. It is renewed every few seconds,
and at once when that version grows. What it says is never ahead of the index, it does not
exist before the first sync, and it is deleted at the end, so that nobody waits for an
extender that is gone. Requests do not notice any of this: whatever fails here is told,
counted and tried again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import structlog

from common.clock import Clock, within
from common.contract import (
    COMPONENT_LABEL,
    EXTENDER,
    EXTENDER_LEASE_PREFIX,
    FILTER_CALLS,
    LOAD_SETTINGS,
    PRODUCT,
    PRODUCT_LABEL,
    SEEN_MIGRATIONS,
)
from common.kube.backoff import Backoff
from common.kube.errors import Conflict, KubeError, NotFound
from common.kube.resources import LEASES, Resource
from common.kube.timestamps import micro_time, parse_time
from common.metrics import Metrics
from common.null_json import UNDECODABLE
from extender.guides import Guides

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_LABELS: Final = {PRODUCT_LABEL: PRODUCT, COMPONENT_LABEL: EXTENDER}
_SELECTOR: Final = ",".join(f"{key}={value}" for key, value in _LABELS.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    """How often the Lease is renewed, and how patiently."""

    every_s: float = 5.0
    look_every_s: float = 0.05
    """A newer version is noticed after this long; bookmarks tell no listener."""
    pause_s: float = 0.1
    """At least this long between two renewals, however quickly versions grow."""
    call_s: float = 5.0
    goodbye_s: float = 2.0
    """How long the end may take; after that the Lease has to run out."""
    backoff_max_s: float = 3.0
    live_s: int = 15
    stale_s: float = 600.0
    """A Lease that was not renewed for this long belongs to nobody."""


class HeartbeatClient(Protocol):
    """The part of `KubeClient` that a heartbeat needs."""

    def get(self, path: str, *, params: Mapping[str, str]) -> Coroutine[Any, Any, bytes]: ...

    def create(
        self, resource: Resource, body: Any, *, namespace: str
    ) -> Coroutine[Any, Any, bytes]: ...

    def patch(
        self, resource: Resource, body: Any, *, name: str, namespace: str
    ) -> Coroutine[Any, Any, bytes]: ...

    def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> Coroutine[Any, Any, bytes]: ...


class _OldMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _OldSpec(msgspec.Struct, rename="camel"):
    renew_time: str | None = None


class _OldLease(msgspec.Struct):
    metadata: _OldMeta = msgspec.field(default_factory=_OldMeta)
    spec: _OldSpec = msgspec.field(default_factory=_OldSpec)


class _OldLeases(msgspec.Struct):
    items: list[_OldLease] = []


class Heartbeat:
    """Keeps this process's Lease; see the module."""

    def __init__(
        self,
        client: HeartbeatClient,
        *,
        namespace: str,
        identity: str,
        seen: Callable[[], int | None],
        guides: Guides,
        settings_hash: str,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random,
        settings: HeartbeatSettings | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._identity = identity
        self._seen = seen
        self._guides = guides
        self._settings_hash = settings_hash
        self._clock = clock
        self._settings = settings or HeartbeatSettings()
        self._backoff = Backoff(
            floor_s=self._settings.pause_s, cap_s=self._settings.backoff_max_s, rng=rng
        )
        self.name: Final = f"{EXTENDER_LEASE_PREFIX}{identity}"
        self._log = log.bind(lease=f"{namespace}/{self.name}")
        self._exists = False
        self._acquired = ""
        self._version: int | None = None
        self._told: int | None = None
        self._renewed_s = 0.0
        self._complaint = ""
        total = metrics.counter(
            "heartbeats_total", "Renewals of the extender's Lease.", ("result",)
        )
        self._written, self._failed = total.labels("written"), total.labels("failed")

    async def run(self) -> None:
        """Renew until cancelled, then delete the Lease."""
        try:
            while self._latest() is None:
                await self._clock.sleep(self._settings.look_every_s)
            await self._sweep()
            while True:
                await self._clock.sleep(await self._beat())
                await self._until_due()
        finally:
            await self._say_goodbye()

    async def _until_due(self) -> None:
        """Wait until there is something to tell, or it is time anyway."""
        due_s = self._renewed_s + self._settings.every_s
        while self._latest() == self._told and (left_s := due_s - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(self._settings.look_every_s, left_s))

    async def _beat(self) -> float:
        """Renew once; return how long to wait at least before the next time."""
        try:
            await self._renew()
        except Exception as error:  # whatever it is, the service goes on
            self._complain(error)
            return self._backoff.next_s()
        self._written.inc()
        self._backoff.reset()
        if self._complaint:
            self._complaint = ""
            self._log.info("lease is renewed again")
        return self._settings.pause_s

    async def _renew(self) -> None:
        # Read before the request: what it says must have been true when it was sent.
        version, started_s = self._latest(), self._clock.monotonic()
        lease = self._lease(version)
        if not self._exists:
            await self._create(lease)
        else:
            await self._patch(lease)
        self._told, self._renewed_s = version, started_s

    def _latest(self) -> int | None:
        # Once in step we stay alive: who falls behind must be waited for, not forgotten.
        self._version = self._seen() or self._version
        return self._version

    async def _create(self, lease: dict[str, Any]) -> None:
        # True already while it is under way: it may be carried out though we hear nothing.
        self._exists = True
        await self._call(self._client.create(LEASES, lease, namespace=self._namespace))

    async def _patch(self, lease: dict[str, Any]) -> None:
        try:
            where = {"name": self.name, "namespace": self._namespace}
            await self._call(self._client.patch(LEASES, lease, **where))
        except NotFound:
            await self._create(lease)

    async def _call(self, call: Awaitable[bytes]) -> None:
        await within(self._clock, self._settings.call_s, call)

    def _lease(self, version: int | None) -> dict[str, Any]:
        now = micro_time(self._clock.now())
        self._acquired = self._acquired or now
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": self.name,
                "namespace": self._namespace,
                "labels": _LABELS,
                "annotations": {
                    SEEN_MIGRATIONS: str(version),
                    FILTER_CALLS: json.dumps(self._guides.report(), separators=(",", ":")),
                    LOAD_SETTINGS: self._settings_hash,
                },
            },
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._settings.live_s,
                "acquireTime": self._acquired,
                "renewTime": now,
            },
        }

    async def _say_goodbye(self) -> None:
        if not self._exists:
            return
        deletion = self._client.delete(LEASES, name=self.name, namespace=self._namespace)
        try:
            await within(self._clock, self._settings.goodbye_s, deletion)
        except NotFound:
            pass
        except (KubeError, TimeoutError) as error:
            self._log.warning("lease not deleted", error=str(error))

    async def _sweep(self) -> None:
        """Remove the Leases of extenders that died without a word."""
        try:
            await within(self._clock, self._settings.call_s, self._remove_stale())
        except (KubeError, TimeoutError, *UNDECODABLE) as error:
            self._log.warning("old leases not removed", error=str(error))

    async def _remove_stale(self) -> None:
        path = LEASES.path(namespace=self._namespace)
        answer = await self._client.get(path, params={"labelSelector": _SELECTOR})
        for lease in msgspec.json.decode(answer, type=_OldLeases).items:
            if self._is_stale(lease):
                await self._remove(lease.metadata)

    def _is_stale(self, lease: _OldLease) -> bool:
        if not lease.metadata.name.startswith(EXTENDER_LEASE_PREFIX):
            return False
        try:
            renewed_s = parse_time(lease.spec.renew_time or "")
        except ValueError:
            return False
        return self._clock.now() - renewed_s > self._settings.stale_s

    async def _remove(self, old: _OldMeta) -> None:
        try:
            await self._client.delete(
                LEASES,
                name=old.name,
                namespace=self._namespace,
                uid=old.uid,
                # Should it be renewed after all, it stays.
                resource_version=old.resource_version,
            )
            self._log.info("old lease removed", old=old.name)
        except (Conflict, NotFound):
            self._log.debug("old lease not there any more, or not old", old=old.name)

    def _complain(self, error: Exception) -> None:
        self._failed.inc()
        words = f"{type(error).__name__}: {error}"
        if words != self._complaint:
            self._complaint = words
            self._log.warning("lease not renewed", error=words)
