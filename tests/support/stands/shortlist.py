# SPDX-License-Identifier: Apache-2.0
"""A measured cluster behind the real service on a real socket: what does filter leave?

Nodes are named by how cool they are: `n000` is the coolest. Every third node is in the same
zone. A pod is sent as kube-scheduler sends it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from common.clock import SYSTEM
from common.http_server import address_of, listen, serving
from common.metrics import Metrics
from extender.service import make_app, server_options
from simulator import build
from tests.support.http import plain_http
from tests.support.stands.extender_service import go_json, preemption_args, strictly
from tests.support.worlds.advisor import CREATED, AdvisorWorld
from tests.support.worlds.wire import uid_of, wire_pod

if TYPE_CHECKING:
    import httpx

Json = dict[str, Any]  # Any: a JSON object

ZONES = ("a", "b", "c")


class ShortlistWorld(AdvisorWorld):
    """A cluster whose nodes are used a little more from one to the next."""

    def __init__(self, nodes: int = 200, **config: Any) -> None:
        super().__init__(**config)
        self.names = [f"n{number:03}" for number in range(nodes)]
        for number, name in enumerate(self.names):
            self.node(name, zone=ZONES[number % len(ZONES)])
            self.busy(name, 70.0 * number / nodes)
        self.measure()

    def place(
        self,
        name: str,
        node: str,
        *,
        owner: str = "",
        status: Json | None = None,
        deleted: bool = False,
        **more: Any,
    ) -> None:
        """Put a pod on a node, as the watch shows it; an empty name is no node."""
        made = build.pod(name, node=node, **more)
        wire = wire_pod(
            made,
            uid=uid_of(name),
            ownerReferences=[controller(owner)] if owner else [],
            deletionTimestamp=CREATED if deleted else None,
            status=status,
        )
        self.state.pods.upsert(wire)


def controller(name: str) -> Json:
    """Return the reference to a ReplicaSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": uid_of(name),
        "controller": True,
    }


def new_pod(name: str = "new", *, owner: str = "", status: Json | None = None, **more: Any) -> Json:
    """Return a pod as it is sent for the first time."""
    made = build.pod(name, **more)
    metadata = {**made["metadata"], "uid": uid_of(name), "creationTimestamp": CREATED}
    if owner:
        metadata["ownerReferences"] = [controller(owner)]
    return {"metadata": metadata, "spec": made["spec"], "status": status or {"phase": "Pending"}}


def not_scheduled(reason: str = "Unschedulable") -> Json:
    """Return the status of a pod that a scheduler could not place."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason}
    return {"phase": "Pending", "conditions": [condition]}


class Scheduler:
    """Asks what kube-scheduler asks."""

    def __init__(self, world: AdvisorWorld, client: httpx.AsyncClient) -> None:
        self._world = world
        self._client = client

    async def filter(self, pod: Json, names: Sequence[str]) -> list[str]:
        """Return the nodes that are left."""
        found = await self.answer(pod, names)
        kept: list[str] = found["NodeNames"]
        return kept

    async def answer(self, pod: Json, names: Sequence[str]) -> Json:
        found: Json = await self._post(
            "filter", {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
        )
        return found

    async def filter_nodes(self, pod: Json, names: Sequence[str]) -> list[str]:
        """Send whole nodes, as without `nodeCacheCapable`."""
        items = [{"metadata": {"name": name}} for name in names]
        args = {"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
        found = await self._post("filter", args)
        return [item["metadata"]["name"] for item in found["Nodes"]["items"]]

    async def scores(self, pod: Json, names: Sequence[str]) -> dict[str, int]:
        found = await self._post(
            "prioritize", {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
        )
        return {each["Host"]: each["Score"] for each in found}

    async def preempt(self, pod: Json, candidates: Iterable[str]) -> list[str]:
        """Return the candidates that stay."""
        args = preemption_args({name: [f"victim-{name}"] for name in candidates}, Pod=pod)
        return list((await self._post("preempt", args))["NodeNameToMetaVictims"])

    def count(self, result: str) -> float:
        return self._world.count("shortlists_total", result=result)

    async def _post(self, verb: str, args: Json) -> Any:
        answer = await self._client.post(f"/{verb}", content=go_json(args))
        assert answer.status_code == 200, answer.text
        return strictly(answer.content)


@asynccontextmanager
async def asking(world: AdvisorWorld) -> AsyncIterator[Scheduler]:
    """Serve the advisor of a world as the program does."""
    listener = await listen("127.0.0.1", 0)
    address = address_of(listener)
    lookup = world.state.pods.by_uid.get
    app = make_app(world.advisor, lookup, Metrics("extender"), clock=SYSTEM)
    async with (
        serving(app, listener, **server_options()),
        plain_http(f"http://{address}", timeout=20) as client,
    ):
        yield Scheduler(world, client)
