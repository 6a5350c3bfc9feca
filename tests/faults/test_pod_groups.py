# SPDX-License-Identifier: Apache-2.0
"""A gang keeps its minimum while its node is emptied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.kube.resources import POD_GROUPS, PODS
from simulator import build
from simulator.api import Change, Json
from tests.support.http import fetch
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.extender import maintain
from tests.support.worlds.migrations import definition

MAINTENANCE: dict[str, Any] = {"enabledStrategies": ["NodeMaintenance"]}
MEMBERS, MINIMUM = 5, 4
LABELED = {
    "kueue.x-k8s.io/queue-name": "Kueue",
    "kueue.x-k8s.io/pod-group-name": "Kueue",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "volcano.sh/job-name": "Volcano",
    "scheduling.x-k8s.io/pod-group": "Coscheduling",
}
ANNOTATED = {"scheduling.k8s.io/group-name": "Volcano"}


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


def uids(loop: Loop, app: str) -> list[str]:
    return [pod["metadata"]["uid"] for pod in loop.pods(app)]


def foreign() -> list[Json]:
    """Return a workload for each key that says that its pods are placed together."""
    keys = [*LABELED, *ANNOTATED]
    return [
        build.deployment(
            f"group-{number}",
            1,
            labels={"app": f"group-{number}"} | ({key: "g"} if key in LABELED else {}),
            annotations={key: "g"} if key in ANNOTATED else None,
        )
        for number, key in enumerate(keys)
    ]


@pytest.mark.parametrize("groups", ["refuse", "restart"])
async def test_pods_of_foreign_groups_stay_where_they_are_and_it_is_said_why(
    tmp_path: Path, groups: str
) -> None:
    """Even a drain leaves them to the controllers that place them as a whole."""
    made, keys = foreign(), [*LABELED, *ANNOTATED]
    places = {f"group-{number}": ["node-0"] for number in range(len(keys))}
    web = build.deployment("web", 2)
    async with closed_loop(tmp_path, *made, web, places=places | {"web": ["node-0"] * 2}) as loop:
        await loop.until(lambda: len(loop.ready()) == len(keys) + 2, "all pods run")
        apps = [f"group-{number}" for number in range(len(keys))]
        before = [uid for app in apps for uid in uids(loop, app)]
        async with loop.rebalancer(**MAINTENANCE, groups=groups) as health:
            maintain(loop.cluster, "node-0", on=True)
            await loop.until(lambda: not loop.on("node-0", "web"), "the others have left")
            await loop.cycles(health, 3)
            plan = (await fetch(f"{health}/debug/plan", output="json")).json()
            maintain(loop.cluster, "node-0", on=False)
        assert [uid for app in apps for uid in uids(loop, app)] == before
        assert len(loop.witness.evicted) == 2
    said = {each["pod"].rpartition("-")[0]: each["reasons"] for each in plan["refused"]}
    for number, (key, system) in enumerate((LABELED | ANNOTATED).items()):
        [reasons] = [said[pod] for pod in said if f"/group-{number}-" in pod]
        assert [each["words"] for each in reasons if each["name"] == "PodGroup"] == [
            f"{key} makes it part of a group of {system}, which is placed as a whole"
        ]
