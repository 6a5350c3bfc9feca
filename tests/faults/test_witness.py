# SPDX-License-Identifier: Apache-2.0
"""The witness of the closed loop sees what must not happen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.api.contract import CORDONED_BY, MAINTENANCE_LABEL
from common.kube.resources import NODES, PDBS
from simulator import build
from simulator.api import DeleteOptions
from tests.support.stands.closed_loop import closed_loop

LINGERING = {"terminationGracePeriodSeconds": 100_000}


async def test_a_second_eviction_of_the_same_pod_is_seen(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="accepted 2 times"):
        await evict_twice(tmp_path)


async def evict_twice(folder: Path) -> None:
    """The API server accepts it, and nothing about the pod changes."""
    web = build.deployment("web", 2, annotations={build.STOP_AFTER: "10h"}, spec=LINGERING)
    async with closed_loop(folder, web, guided=False) as loop:
        pod = (await loop.until_ready("web", 2))[0]["metadata"]
        for dry_run in (True, False, True):
            options = DeleteOptions(uid=pod["uid"], dry_run=dry_run)
            loop.store.evict(pod["name"], "default", options=options)
        assert loop.witness.evicted == [pod["uid"]]
        loop.witness.check()
        loop.store.evict(pod["name"], "default", options=DeleteOptions(uid=pod["uid"]))


BY_EXPRESSION = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]}
FOREIGN = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}


@pytest.mark.parametrize(
    ("spec", "complains"),
    [
        ({"minAvailable": 4}, True),
        ({"minAvailable": 3}, False),
        ({"minAvailable": "80%"}, True),
        ({"minAvailable": "75%"}, False),
        ({"maxUnavailable": 0}, True),
        ({"maxUnavailable": 1}, False),
        ({"maxUnavailable": "0%"}, True),
        ({"maxUnavailable": "10%"}, False),
        ({"minAvailable": "100%", "selector": BY_EXPRESSION}, True),
        ({"minAvailable": "75%", "selector": BY_EXPRESSION}, False),
        ({"minAvailable": 4, "selector": FOREIGN}, False),
        ({"minAvailable": 4, "selector": {}}, True),
    ],
    ids=str,
)
async def test_an_eviction_against_a_budget_is_seen(
    spec: dict[str, Any], complains: bool, tmp_path: Path
) -> None:
    """The PDB comes so late that its pods are not counted, as if a server had let it through."""
    async with closed_loop(tmp_path, build.deployment("web", 4), guided=False) as loop:
        pod = (await loop.until_ready("web", 4))[0]["metadata"]
        budget = build.pdb("web", match={"app": "web"})
        loop.store.create(PDBS, {**budget, "spec": {**budget["spec"], **spec}})
        allowed = {"status": {"observedGeneration": 1, "disruptionsAllowed": 1}}
        loop.store.patch(PDBS, "web", allowed, namespace="default", status=True)
        loop.store.evict(pod["name"], "default")
        assert bool(loop.witness.complaints) is complains, loop.witness.complaints
        loop.witness.complaints.clear()


async def test_a_cordon_that_outlives_the_maintenance_is_left_behind(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, guided=False) as loop:
        metadata = {"annotations": {CORDONED_BY: "evenkeel"}, "labels": {MAINTENANCE_LABEL: "true"}}
        loop.store.patch(NODES, "node-1", {"metadata": metadata, "spec": {"unschedulable": True}})
        assert loop.left_behind() == []
        over = {"metadata": {"labels": {MAINTENANCE_LABEL: None}}}
        loop.store.patch(NODES, "node-1", over)
        assert loop.left_behind() == ["cordon of node-1"]
