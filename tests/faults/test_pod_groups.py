# SPDX-License-Identifier: Apache-2.0
"""A gang keeps its minimum while its node is emptied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.kube.resources import POD_GROUPS, PODS
from simulator import build
from simulator.api import Change, Json
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.extender import maintain
from tests.support.worlds.migrations import definition

MAINTENANCE: dict[str, Any] = {"enabledStrategies": ["NodeMaintenance"]}
MEMBERS, MINIMUM = 5, 4


def pod_groups_crd() -> Json:
    """Return a CRD for the kind, which Kubernetes serves itself behind a gate."""
    found = definition()
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"}
    version = {
        "name": POD_GROUPS.version,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }
    spec = {"group": POD_GROUPS.group, "scope": "Namespaced", "names": names, "versions": [version]}
    meta = {
        "name": f"podgroups.{POD_GROUPS.group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    }
    return {**found, "metadata": meta, "spec": spec}


def gang() -> Json:
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": MINIMUM}}},
    }


def members() -> Json:
    return build.deployment("train", MEMBERS, spec={"schedulingGroup": {"podGroupName": "train"}})


class Least:
    """The fewest pods of an app that were ready when one was evicted, that one left out."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._known: set[str] = set()
        self.found: list[int] = []
        loop.store.subscribe(PODS, self._told)

    def _told(self, _: Change) -> None:
        evicted = set(self._loop.witness.evicted)
        if new := evicted - self._known:
            self._known |= new
            self.found.append(len(self._loop.ready("train")))


async def test_a_drain_takes_one_pod_of_a_gang_after_the_other(tmp_path: Path) -> None:
    places = {"train": ["node-0"] * MEMBERS}
    async with closed_loop(tmp_path, pod_groups_crd(), members(), places=places) as loop:
        loop.store.create(POD_GROUPS, gang())
        await loop.until_ready("train", MEMBERS)
        least = Least(loop)
        async with loop.rebalancer(**MAINTENANCE):
            maintain(loop.cluster, "node-0", on=True)
            await loop.until(lambda: not loop.on("node-0", "train"), "the node is empty")
            await loop.until_ready("train", MEMBERS)
            maintain(loop.cluster, "node-0", on=False)
        assert len(least.found) == MEMBERS
        assert min(least.found) >= MINIMUM
