# SPDX-License-Identifier: Apache-2.0
"""Writes nodes under maintenance: cordon, annotations and our condition.

Every patch is based on the node as it was just read, with its resourceVersion: a person may
uncordon the node or remove the label between our read and the patch, and then the patch fails.
A condition is merged by its type, so it needs no version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog

from common.api.objects import Node
from common.clock import Clock
from common.cluster.records import ConditionRecord, NodeName, NodeRecord
from common.kube.api import PatchKind
from common.kube.client import KubeClient
from common.kube.errors import Conflict, KubeError, NotFound
from common.kube.resources import NODES
from common.metrics import Metrics
from common.null_json import JsonDecoder
from rebalancer.maintenance.condition import removing, setting

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Json = dict[str, Any]  # Any: a piece of JSON

TRIES: Final = 3
"""How often a conflict is resolved by reading again before the next pass."""
STATUS: Final = "status"

_DECODER: Final = JsonDecoder(Node)


class NodeWriter:
    """Patches nodes; a failure is logged and counted, and the next pass tries again."""

    def __init__(self, client: KubeClient, clock: Clock, metrics: Metrics) -> None:
        self._client = client
        self._clock = clock
        self._writes = metrics.counter(
            "maintenance_writes_total",
            "Patches of nodes under maintenance, by result.",
            ("result",),
        )
        self.last_error: dict[NodeName, str] = {}
        """Why the last patch of a node failed."""

    async def patch(self, name: NodeName, change: Callable[[Node], Json | None]) -> bool:
        """Patch a node as it is now; tell whether something was changed."""
        try:
            for _ in range(TRIES):
                fresh = _DECODER.decode(await self._client.get(NODES.path(name=name)))
                body = change(fresh)
                if body is None:
                    return False
                version = {"resourceVersion": fresh.metadata.resource_version}
                body["metadata"] = {**body["metadata"], **version}
                if await self._patched(name, body):
                    return True
        except NotFound:
            return False
        except KubeError as error:
            self._failed(name, error)
        return False

    async def set_drained(self, node: NodeRecord, new: ConditionRecord) -> bool:
        """Set the condition of a node; tell whether that succeeded."""
        return await self._status(node.name, setting(new, node.drained, self._clock.now()))

    async def remove_drained(self, name: NodeName) -> bool:
        """Remove the condition of a node; tell whether that succeeded."""
        return await self._status(name, removing())

    async def _status(self, name: NodeName, body: Json) -> bool:
        kind = PatchKind.STRATEGIC
        try:
            await self._client.patch(NODES, body, name=name, subresource=STATUS, kind=kind)
        except NotFound:
            return False
        except KubeError as error:
            self._failed(name, error)
            return False
        self._writes.labels("written").inc()
        return True

    async def _patched(self, name: NodeName, body: Json) -> bool:
        try:
            await self._client.patch(NODES, body, name=name)
        except Conflict:
            return False
        self.last_error.pop(name, None)
        self._writes.labels("written").inc()
        return True

    def _failed(self, name: NodeName, error: KubeError) -> None:
        self.last_error[name] = str(error)
        self._writes.labels("failed").inc()
        log.warning("node not patched for maintenance", node=name, error=str(error))
