# SPDX-License-Identifier: Apache-2.0
"""The simulator as a stand of the conformance suite.

The API server on a real port, and of the controllers only those whose work the suite
looks at. No scheduler and no kubelets: nothing happens to a pod that a case did not do.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.stands.http import open_http
from common.clock import SYSTEM, Clock
from common.kube.resources import NAMESPACES, PODS, REPLICASETS
from simulator import build
from simulator.api import (
    ApiServer,
    Faults,
    GarbageCollector,
    MetricsProvider,
    NamespaceController,
    Store,
)
from simulator.cluster import write_kubeconfig
from simulator.controllers.disruption import DisruptionController
from tests.support.stands.conformance import Json, Stand

if TYPE_CHECKING:
    import httpx

SEED = 7


@dataclass(frozen=True)
class SimulatedApi:
    """A running server with its parts."""

    store: Store
    server: ApiServer
    faults: Faults
    kubeconfig: Path


@asynccontextmanager
async def simulated_api(
    folder: Path,
    *,
    clock: Clock = SYSTEM,
    metrics: MetricsProvider | None = None,
    bookmark_every_s: float = 60.0,
    history: int = 20_000,
    port: int = 0,
) -> AsyncIterator[SimulatedApi]:
    """Serve an empty cluster with the controllers that belong to the API."""
    store = Store(clock=clock, rng=random.Random(SEED), history=history)
    faults = Faults(clock=clock, rng=random.Random(SEED))
    controllers = (
        GarbageCollector(store, clock=clock),
        NamespaceController(store, clock=clock),
        DisruptionController(store, clock=clock),
    )
    tasks = [asyncio.create_task(controller.run()) for controller in controllers]
    server = ApiServer(
        store, port=port, faults=faults, metrics=metrics, bookmark_every_s=bookmark_every_s
    )
    try:
        async with server:
            kubeconfig = write_kubeconfig(folder / "simulator.kubeconfig", server.url)
            yield SimulatedApi(store, server, faults, kubeconfig)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SimulatedStand(Stand):
    """The simulator, held to what the real server does."""

    name = "simulator"

    def __init__(self, http: httpx.AsyncClient, namespace: str, store: Store) -> None:
        super().__init__(http, namespace)
        self._store = store

    async def compact(self) -> None:
        self._store.storage.compact()

    async def replicas_of(self, owner: Json, count: int) -> Iterable[str]:
        reference = {
            "apiVersion": REPLICASETS.api_version,
            "kind": REPLICASETS.kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        template: dict[str, Any] = owner["spec"]["template"]
        metadata = {
            "generateName": f"{owner['metadata']['name']}-",
            "labels": template["metadata"]["labels"],
            "ownerReferences": [reference],
        }
        pod = {"metadata": metadata, "spec": template["spec"]}
        made = [self._store.create(PODS, pod, namespace=self.namespace) for _ in range(count)]
        return [each["metadata"]["name"] for each in made]


@asynccontextmanager
async def simulated_stand(folder: Path) -> AsyncIterator[SimulatedStand]:
    """Open a stand with a namespace of its own."""
    async with simulated_api(folder, bookmark_every_s=0.2) as api:
        namespace = f"case-{secrets.token_hex(3)}"
        api.store.create(NAMESPACES, build.namespace(namespace))
        async with open_http(api.kubeconfig) as http:
            yield SimulatedStand(http, namespace, api.store)
