"""Whoever watches the closed loop sees what must not happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import build
from simulator.api import DeleteOptions
from tests.support.closed_loop import closed_loop

LINGERING = {"terminationGracePeriodSeconds": 100_000}


async def test_a_second_eviction_of_the_same_pod_is_seen(tmp_path: Path) -> None:
    """The API server accepts it, and nothing about the pod changes."""
    web = build.deployment("web", 2, annotations={build.STOP_AFTER: "10h"}, spec=LINGERING)
    with pytest.raises(AssertionError, match="accepted 2 times"):
        async with closed_loop(tmp_path, web, guided=False) as loop:
            pod = (await loop.until_ready("web", 2))[0]["metadata"]
            for dry_run in (True, False, True):
                options = DeleteOptions(uid=pod["uid"], dry_run=dry_run)
                loop.store.evict(pod["name"], "default", options=options)
            assert loop.witness.evicted == [pod["uid"]]
            loop.witness.check()
            loop.store.evict(pod["name"], "default", options=DeleteOptions(uid=pod["uid"]))
