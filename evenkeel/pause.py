# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap that stops all moves: reading, writing and removing it.

It is an object of its own, so that no tool that applies the configuration from a repository takes
it away. Every rebalancer watches it; one that cannot read it moves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from common.api.contract import (
    PAUSE,
    PAUSED_BECAUSE,
    PAUSED_BY,
    PAUSED_SINCE,
    PAUSED_UNTIL,
    PRODUCT,
    PRODUCT_LABEL,
)
from common.api.objects import ConfigMap
from common.cli import StartError
from common.cluster.interning import Interner
from common.cluster.storage import PauseRecord, pause_record
from common.kube.api import KubeApi
from common.kube.errors import AlreadyExists, Forbidden, NotFound
from common.kube.resources import CONFIGMAPS
from common.kube.timestamps import to_the_second
from evenkeel.errors import MissingPermission


class PauseRead(NamedTuple):
    """What is known of the pause."""

    pause: PauseRecord | None
    """Whether its time is over or not; None if there is none, or none is known."""
    why_unknown: str = ""


async def read_pause(client: KubeApi, namespace: str) -> PauseRead:
    """Return the pause; a caller who may not read it does not know whether there is one."""
    try:
        body = await client.get(CONFIGMAPS.path(namespace=namespace, name=PAUSE))
        found = pause_record(msgspec.json.decode(body, type=ConfigMap), Interner())
    except NotFound:
        return PauseRead(None)
    except Forbidden:
        return PauseRead(None, f"you may not get ConfigMap {namespace}/{PAUSE}")
    except msgspec.DecodeError:
        found = PauseRecord(namespace=namespace, by="", why=f"ConfigMap {PAUSE} is not valid")
    return PauseRead(found)


async def write_pause(client: KubeApi, namespace: str, pause: PauseRecord) -> None:
    """Stop all moves; a pause that is there already is replaced."""
    body = _manifest(namespace, pause)
    try:
        try:
            await client.create(CONFIGMAPS, body, namespace=namespace)
        except AlreadyExists:
            await client.replace(CONFIGMAPS, body, namespace=namespace, name=PAUSE)
    except Forbidden:
        raise MissingPermission(
            [f"create and update configmaps ({PAUSE}) in namespace {namespace}"], grants=""
        ) from None
    except NotFound:
        raise StartError(
            f"there is no namespace {namespace}; -n names the one of Evenkeel"
        ) from None


async def remove_pause(client: KubeApi, namespace: str) -> bool:
    """Let moves go on; tell whether there was a pause."""
    try:
        await client.delete(CONFIGMAPS, namespace=namespace, name=PAUSE)
    except NotFound:
        return False
    except Forbidden:
        raise MissingPermission(
            [f"delete configmaps ({PAUSE}) in namespace {namespace}"], grants=""
        ) from None
    return True


def _manifest(namespace: str, pause: PauseRecord) -> dict[str, object]:
    data = {PAUSED_BY: pause.by, PAUSED_BECAUSE: pause.why}
    if pause.since_s is not None:
        data[PAUSED_SINCE] = to_the_second(pause.since_s)
    if pause.until_s is not None:
        data[PAUSED_UNTIL] = to_the_second(pause.until_s)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": PAUSE,
            "namespace": namespace,
            "labels": {PRODUCT_LABEL: PRODUCT},
        },
        "data": data,
    }
