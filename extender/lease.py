# SPDX-License-Identifier: Apache-2.0
"""The Lease that tells the rebalancer what this extender knows.

The rebalancer evicts no pod before every live extender has its intent, so the Lease publishes
the resourceVersion up to which Migrations are in the index. It is renewed every few seconds,
and at once when that version grows. It is never ahead of the index, does not exist before the
first sync, and is deleted at shutdown, so that the rebalancer does not wait for an extender
that is gone. Requests are not affected by any of this: failures are logged, counted and
retried.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from common.api.contract import (
    COMPONENT_LABEL,
    EXTENDER,
    EXTENDER_LEASE_PREFIX,
    FILTER_CALLS,
    LOAD_SETTINGS,
    PRODUCT,
    PRODUCT_LABEL,
    SEEN_MIGRATIONS,
)
from common.clock import within
from common.kube.api import KubeApi
from common.kube.backoff import Backoff
from common.kube.errors import Conflict, KubeError, NotFound
from common.kube.resources import LEASES
from common.kube.timestamps import micro_time, parse_time
from common.null_json import UNDECODABLE
from common.runtime import Runtime
from extender.callers import Callers

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_LABELS: Final = {PRODUCT_LABEL: PRODUCT, COMPONENT_LABEL: EXTENDER}
_SELECTOR: Final = ",".join(f"{key}={value}" for key, value in _LABELS.items())

RENEW_INTERVAL_S: Final = 5.0
_POLL_INTERVAL_S: Final = 0.05
"""A newer version is noticed after this long; bookmarks are not passed to listeners."""
_MIN_PAUSE_S: Final = 0.1
"""The shortest time between two renewals, however quickly versions grow."""
_MAX_BACKOFF_S: Final = 3.0
_CALL_TIMEOUT_S: Final = 5.0
_SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long deleting the Lease may take; after that it has to expire."""
_DURATION_S: Final = 15
_STALE_S: Final = 600.0
"""A Lease that was not renewed for this long belongs to an extender that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseContent:
    """What the Lease publishes."""

    identity: str
    seen_version: Callable[[], int | None]
    """The resourceVersion of Migrations that the index has; None if it is not in sync."""
    callers: Callers
    load_settings_hash: str


class _LeaseMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _LeaseSpec(msgspec.Struct, rename="camel"):
    renew_time: str | None = None


class _Lease(msgspec.Struct):
    metadata: _LeaseMeta = msgspec.field(default_factory=_LeaseMeta)
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class _LeaseList(msgspec.Struct):
    items: list[_Lease] = []


class ExtenderLease:
    """Keeps the Lease of this process; see the module."""

    def __init__(
        self,
        client: KubeApi,
        content: LeaseContent,
        *,
        namespace: str,
        runtime: Runtime,
    ) -> None:
        self._client = client
        self._content = content
        self._namespace = namespace
        self._clock = runtime.clock
        self._backoff = Backoff(floor_s=_MIN_PAUSE_S, cap_s=_MAX_BACKOFF_S, rng=runtime.rng)
        self.name: Final = f"{EXTENDER_LEASE_PREFIX}{content.identity}"
        self._log = log.bind(lease=f"{namespace}/{self.name}")
        self._exists = False
        self._acquired = ""
        self._version: int | None = None
        self._published: int | None = None
        self._renewed_s = 0.0
        self._last_error = ""
        total = runtime.metrics.counter(
            "heartbeats_total", "Renewals of the extender's Lease.", ("result",)
        )
        self._written, self._failed = total.labels("written"), total.labels("failed")

    async def run(self) -> None:
        """Renew the Lease until canceled, then delete it."""
        try:
            while self._latest_version() is None:
                await self._clock.sleep(_POLL_INTERVAL_S)
            await self._clean_up()
            while True:
                await self._clock.sleep(await self._try_renew())
                await self._until_due()
        finally:
            await self._delete()

    async def _until_due(self) -> None:
        """Wait until there is a newer version to publish, or the next renewal is due."""
        due_s = self._renewed_s + RENEW_INTERVAL_S
        while (
            self._latest_version() == self._published
            and (left_s := due_s - self._clock.monotonic()) > 0
        ):
            await self._clock.sleep(min(_POLL_INTERVAL_S, left_s))

    async def _try_renew(self) -> float:
        """Renew once; return how long to wait at least before the next time."""
        try:
            await self._renew()
        except Exception as error:  # whatever it is, the service goes on
            self._report(error)
            return self._backoff.next_s()
        self._written.inc()
        self._backoff.reset()
        if self._last_error:
            self._last_error = ""
            self._log.info("lease renewed again")
        return _MIN_PAUSE_S

    async def _renew(self) -> None:
        # Read before the request: what it publishes must be true when it is sent.
        version, started_s = self._latest_version(), self._clock.monotonic()
        lease = self._body(version)
        if not self._exists:
            await self._create(lease)
        else:
            await self._patch(lease)
        self._published, self._renewed_s = version, started_s

    def _latest_version(self) -> int | None:
        # Once in sync it stays alive: the rebalancer must wait for an extender that falls
        # behind, and would ignore one without a Lease.
        self._version = self._content.seen_version() or self._version
        return self._version

    async def _create(self, lease: dict[str, Any]) -> None:
        # Set before the call: the server may carry it out although the response is lost.
        self._exists = True
        await self._call(self._client.create(LEASES, lease, namespace=self._namespace))

    async def _patch(self, lease: dict[str, Any]) -> None:
        patch = self._client.patch(LEASES, lease, name=self.name, namespace=self._namespace)
        try:
            await self._call(patch)
        except NotFound:
            await self._create(lease)

    async def _call(self, call: Awaitable[bytes]) -> None:
        await within(self._clock, _CALL_TIMEOUT_S, call)

    def _body(self, version: int | None) -> dict[str, Any]:
        now = micro_time(self._clock.now())
        self._acquired = self._acquired or now
        callers = self._content.callers.report()
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": self.name,
                "namespace": self._namespace,
                "labels": _LABELS,
                "annotations": {
                    SEEN_MIGRATIONS: str(version),
                    FILTER_CALLS: json.dumps(callers, separators=(",", ":")),
                    LOAD_SETTINGS: self._content.load_settings_hash,
                },
            },
            "spec": {
                "holderIdentity": self._content.identity,
                "leaseDurationSeconds": _DURATION_S,
                "acquireTime": self._acquired,
                "renewTime": now,
            },
        }

    async def _delete(self) -> None:
        if not self._exists:
            return
        deletion = self._client.delete(LEASES, name=self.name, namespace=self._namespace)
        try:
            await within(self._clock, _SHUTDOWN_TIMEOUT_S, deletion)
        except NotFound:
            pass
        except (KubeError, TimeoutError) as error:
            self._log.warning("lease not deleted", error=str(error))

    async def _clean_up(self) -> None:
        """Delete the Leases of extenders that ended without deleting theirs."""
        try:
            await within(self._clock, _CALL_TIMEOUT_S, self._delete_stale())
        except (KubeError, TimeoutError, *UNDECODABLE) as error:
            self._log.warning("stale leases not deleted", error=str(error))

    async def _delete_stale(self) -> None:
        path = LEASES.path(namespace=self._namespace)
        answer = await self._client.get(path, params={"labelSelector": _SELECTOR})
        for lease in msgspec.json.decode(answer, type=_LeaseList).items:
            if self._is_stale(lease):
                await self._delete_one(lease.metadata)

    def _is_stale(self, lease: _Lease) -> bool:
        if not lease.metadata.name.startswith(EXTENDER_LEASE_PREFIX):
            return False
        try:
            renewed_s = parse_time(lease.spec.renew_time or "")
        except ValueError:
            return False
        return self._clock.now() - renewed_s > _STALE_S

    async def _delete_one(self, stale: _LeaseMeta) -> None:
        try:
            await self._client.delete(
                LEASES,
                name=stale.name,
                namespace=self._namespace,
                uid=stale.uid,
                # If it is renewed after all, it stays.
                resource_version=stale.resource_version,
            )
            self._log.info("stale lease deleted", stale=stale.name)
        except (Conflict, NotFound):
            self._log.debug("stale lease renewed or already deleted", stale=stale.name)

    def _report(self, error: Exception) -> None:
        self._failed.inc()
        message = f"{type(error).__name__}: {error}"
        if message != self._last_error:
            self._last_error = message
            self._log.warning("lease not renewed", error=message)
