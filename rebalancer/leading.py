"""What only a leader may do runs while this process leads, and not a moment longer.

Two that are told different namespaces would each lead in theirs. So before this process takes
part in an election it looks for a Lease of the same name elsewhere that is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from common.kube.errors import Forbidden
from common.kube.leader import LeaseSpec
from common.kube.own import LeaseNamespace
from common.kube.resources import LEASES
from common.kube.timestamps import parse_time
from common.program import StartError

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FORSAKEN_S: Final = 600.0
"""A Lease that was not renewed for so long has no holder, however far clocks are apart."""


class Electing(Protocol):
    """The part of `Elector` that is needed here."""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None: ...


class LeaseLister(Protocol):
    """The part of `KubeClient` that is needed here."""

    async def get(self, path: str, *, params: Mapping[str, Any]) -> bytes: ...


class _Meta(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Lease(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class _Leases(msgspec.Struct):
    items: list[_Lease] = []


async def while_leading(
    elector: Electing | None, parts: Sequence[Callable[[], Awaitable[None]]]
) -> None:
    """Run what only a leader may do; all of it is cancelled at once when the lead is lost.

    Without an elector there is never a second program, and everything runs right away.
    """

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(_run(part))

    await (work() if elector is None else elector.lead(work))


async def refuse_a_second_leader(
    client: LeaseLister, namespace: LeaseNamespace, name: str, now_s: float
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


async def _holders(client: LeaseLister, name: str, now_s: float) -> Mapping[str, str]:
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
        return abs(now_s - parse_time(spec.renew_time or "")) < FORSAKEN_S
    except ValueError:
        return False


async def _run(part: Callable[[], Awaitable[None]]) -> None:
    await part()
