# SPDX-License-Identifier: Apache-2.0
"""Makes a pod the first that its ReplicaSet removes, and gives its own deletion cost back.

A ReplicaSet compares pods that are Ready by `controller.kubernetes.io/pod-deletion-cost`
(ActivePodsWithRanks in pkg/controller/controller_utils.go); the lowest goes first. What the
user had set is kept on the pod itself, written by the same request: so a crash
cannot lose it. Every change is conditional on the version of the pod that was read.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from common.api.contract import DELETION_COST, OWN_DELETION_COST, RANKED_BY
from common.cluster.records import PodRecord
from common.kube.api import KubeApi
from common.kube.errors import FINAL, KubeError, NotFound
from common.kube.resources import PODS
from common.null_json import UNDECODABLE
from rebalancer.migration.pod_marks import MarkAttempt, MarkResult

LOWEST: Final = "-2147483648"
"""The smallest 32-bit number."""
_GONE: Final = MarkAttempt(MarkResult.GONE)
_DONE: Final = MarkAttempt(MarkResult.DONE)


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class DeletionCosts:
    """Sets and restores the deletion cost of pods."""

    def __init__(self, client: KubeApi) -> None:
        self._client = client

    async def lower(self, pod: PodRecord, migration: str) -> MarkAttempt:
        """Give the pod the lowest cost, and keep what it had; done once is enough."""

        def change(held: dict[str, str]) -> dict[str, str | None] | None:
            if held.get(DELETION_COST) == LOWEST and RANKED_BY in held:
                return None
            kept = {} if RANKED_BY in held else {OWN_DELETION_COST: held.get(DELETION_COST, "")}
            return {DELETION_COST: LOWEST, RANKED_BY: migration, **kept}

        return await self._change(pod.namespace, pod.name, pod.uid, change)

    async def restore(self, namespace: str, name: str, uid: str) -> MarkAttempt:
        """Give back what the user had set; a cost that was changed since is theirs."""

        def change(held: dict[str, str]) -> dict[str, str | None] | None:
            if RANKED_BY not in held:
                return None
            own = held.get(OWN_DELETION_COST) or None
            cost = {DELETION_COST: own} if held.get(DELETION_COST) == LOWEST else {}
            return {RANKED_BY: None, OWN_DELETION_COST: None, **cost}

        return await self._change(namespace, name, uid, change)

    async def _change(self, namespace: str, name: str, uid: str, change: Any) -> MarkAttempt:
        try:
            found = await self._read(namespace, name)
            if found is None or found.uid != uid or found.deletion_timestamp is not None:
                return _GONE
            wanted = change(found.annotations or {})
            if wanted is None:
                return _DONE
            metadata = {
                "uid": uid, "resourceVersion": found.resource_version, "annotations": wanted
            }  # fmt: skip
            await self._client.patch(PODS, {"metadata": metadata}, name=name, namespace=namespace)
        except NotFound:
            return _GONE
        except FINAL as error:
            return MarkAttempt(MarkResult.REFUSED, str(error))
        except (KubeError, *UNDECODABLE) as error:
            return MarkAttempt(MarkResult.FAILED, str(error))
        return _DONE

    async def _read(self, namespace: str, name: str) -> _Meta | None:
        try:
            raw = await self._client.get(PODS.path(namespace=namespace, name=name))
        except NotFound:
            return None
        return msgspec.json.decode(raw, type=_Pod).metadata


def is_lowest(pod: PodRecord) -> bool:
    """Tell whether the watch shows the lowest cost on a pod."""
    return pod.annotations.get(DELETION_COST) == LOWEST
