# SPDX-License-Identifier: Apache-2.0
"""The next page of a list is read while the last one is taken in."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, NoReturn

from common.config import Reading
from common.kube.api import KubeApi
from common.kube.reflector import ListWatch, Reflector
from common.kube.resources import PODS
from common.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.stands.reflector import Shelf, Thing, thing

PAGE = 500


class Pages(KubeApi):
    """Two pages; notes how many objects were taken in when each was asked for."""

    def __init__(self, shelf: Shelf) -> None:
        self.taken_in: list[int] = []
        self._shelf = shelf

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        self.taken_in.append(len(self._shelf.sizes))
        second = "continue" in more["params"]
        items = [thing(f"{second}-{number}", 1, size=1) for number in range(PAGE)]
        metadata = {"resourceVersion": "7", "continue": "" if second else "more"}
        return json.dumps({"metadata": metadata, "items": items}).encode()

    def stream(self, path: str, **_: Any) -> NoReturn:
        raise asyncio.CancelledError


async def test_the_next_page_is_asked_for_before_the_last_one_is_taken_in() -> None:
    shelf, clock = Shelf(), FakeClock()
    api = Pages(shelf)
    reflector = Reflector(
        api,
        ListWatch(PODS, Thing),
        shelf,
        reading=Reading(),
        clock=clock,
        metrics=Metrics("test"),
        rng=random.Random(1),
    )
    task = asyncio.create_task(reflector.run())
    await asyncio.wait([task])

    assert len(shelf.sizes) == 2 * PAGE
    first, second = api.taken_in
    assert first == 0
    assert second < PAGE
