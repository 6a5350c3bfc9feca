# SPDX-License-Identifier: Apache-2.0
"""What only a leader may do runs while this process leads, and not a moment longer.

Two processes with different namespaces would each lead in their own. So before this process
takes part in an election it searches the other namespaces for a Lease of the same name that
is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from common.cli import StartError
from common.kube.api import KubeApi
from common.kube.errors import Forbidden
from common.kube.identity import LeaseNamespace
from common.kube.leader import Elector, LeaseSpec
from common.kube.resources import LEASES
from common.kube.timestamps import parse_time

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ABANDONED_S: Final = 600.0
"""A Lease that was not renewed for this long has no holder, however far clocks differ."""


class Leadership:
    """Tells whether this process may act, and runs what only a leader may do."""

    def __init__(self, elector: Elector | None = None, *, dry_run: bool = False) -> None:
        """Without an elector there is never a second rebalancer; a dry run never leads."""
        self._elector = elector
        self.dry_run: Final = dry_run

    def leads(self) -> bool:
        """Tell whether this process leads at this moment."""
        return not self.dry_run and (self._elector is None or self._elector.is_leader)

    def describe(self) -> str:
        """Say whether this process leads, or which one does."""
        if self.dry_run:
            return "this is a dry run, which plans without leading"
        if self._elector is None:
            return "this process leads: leaderElection is off"
        if self._elector.is_leader:
            return "this process leads"
        return f"this process stands by; {self._elector.holder or 'no other process'} leads"

    def require_namespace(self, namespaces: Container[str]) -> None:
        """Refuse to wait for a Lease that can never be written."""
        if self._elector is None or self._elector.namespace in namespaces:
            return
        raise StartError(
            f"namespace {self._elector.namespace} does not exist, and the Lease of the leader "
            "would be there: name the one that Evenkeel is installed in with --namespace, "
            "or add --dry-run, which plans without a Lease"
        )

    async def run(self, parts: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run all parts while leading; they are canceled at once when the lead is lost."""

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(_run(part))

        # One task group: when the lead is lost, canceling it stops every part in the same moment,
        # before the Lease can pass to another process.
        await (work() if self._elector is None else self._elector.lead(work))


class _Meta(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Lease(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class _Leases(msgspec.Struct):
    items: list[_Lease] = []


async def refuse_a_second_leader(
    client: KubeApi, namespace: LeaseNamespace, name: str, now_s: float
) -> None:
    """Raise `StartError` if another namespace has a leader, unless ours was named on purpose.

    Anyone who may write Leases somewhere can make one of this name, so what runs in a cluster,
    or was told where to look, is only warned. The installed program may read Leases of its own
    namespace only, and does without.
    """
    others = await _holders(client, name, now_s)
    for other, holder in sorted(others.items()):
        if other == namespace.name:
            continue
        if namespace.said:
            log.warning("another leader", leader=holder, lease=f"{other}/{name}")
            continue
        raise StartError(
            f"{holder} leads already, with the Lease {name} in namespace {other}: "
            f"add --namespace {other} to stand by beside it, or --dry-run to plan without leading"
        )


async def _holders(client: KubeApi, name: str, now_s: float) -> Mapping[str, str]:
    """Return who holds Leases of a name, by namespace."""
    try:
        found = await client.get(LEASES.path(), params={"fieldSelector": f"metadata.name={name}"})
        leases = msgspec.json.decode(found, type=_Leases).items
    except (Forbidden, msgspec.DecodeError) as error:
        log.debug("leases of other namespaces not read", error=str(error))
        return {}
    held = (lease for lease in leases if lease.metadata.name == name)
    return {
        lease.metadata.namespace: lease.spec.holder_identity
        for lease in held
        if lease.spec.holder_identity and _is_fresh(lease.spec, now_s)
    }


def _is_fresh(spec: LeaseSpec, now_s: float) -> bool:
    try:
        return abs(now_s - parse_time(spec.renew_time or "")) < ABANDONED_S
    except ValueError:
        return False


async def _run(part: Callable[[], Awaitable[None]]) -> None:
    await part()
