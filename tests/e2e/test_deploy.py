# SPDX-License-Identifier: Apache-2.0
"""What `deploy/` renders is taken by the real API server, and its policies hold.

Everything is applied with strict validation, over itself, and removed again; afterwards
nothing of any kind may bear our name.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import MERGE, Cluster
from bench.stands.landing import Landing
from common.api.contract import MIGRATION_ID_LABEL, MIGRATION_TIME
from common.kube.client import KubeClient
from common.kube.errors import Invalid
from common.kube.resources import PODS
from controlplane.errors import Refused
from simulator import build
from tests.support.deploy.operator_kinds import operator_kinds
from tests.support.deploy.render import (
    OPT_IN,
    SECOND,
    installed,
    kubectl,
    kustomization,
    pods_of,
    render,
)
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

COMPONENTS = ("act", "bare-pods", "monitoring", "namespace-opt-in", "pod-guard")
OWNER = {"apiVersion": "v1", "kind": "ReplicationController", "name": "any", "uid": "any"}
MARKS: tuple[Any, ...] = (
    {"labels": {MIGRATION_ID_LABEL: "a"}, "annotations": {MIGRATION_TIME: "now"}},
    {"labels": {MIGRATION_ID_LABEL: None}, "annotations": {MIGRATION_TIME: None}},
)
FOREIGN: tuple[Any, ...] = (
    {"labels": {"app": "other"}},
    {"labels": {"app": None}},
    {"labels": {"new": "label", MIGRATION_ID_LABEL: "a"}},
    {"annotations": {"new": "annotation"}},
    {"finalizers": ["example.com/stay"]},
    {"ownerReferences": [OWNER]},
)


async def test_everything_is_applied_upgraded_and_removed_without_a_trace(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    alone = kustomization(tmp_path / "alone", "base")
    full = kustomization(tmp_path / "full", SECOND, COMPONENTS)
    async with operator_kinds(partial(kubectl, cluster)), installed(cluster, alone, full):
        with pytest.raises(Refused, match="violates PodSecurity"):
            await cluster.create([build.pod("any", namespace="evenkeel")])
        say(f"{len(render(alone))} objects alone, {len(render(full))} with a second scheduler "
            "and all components")  # fmt: skip


async def test_the_rebalancer_may_mark_pods_and_change_nothing_else_of_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.create([build.pod("app", namespace=cluster.namespace)])
    async with (
        installed(cluster, kustomization(tmp_path / "k", "base", ["pod-guard"])),
        cluster.client(service_account="evenkeel/evenkeel-rebalancer") as client,
    ):
        foreign = [{"metadata": change} for change in FOREIGN]
        foreign.append({"spec": {"activeDeadlineSeconds": 60}})
        await cluster.wait(lambda: _is_refused(client, cluster, _new()), what="the policy counts")
        refused = [await _is_refused(client, cluster, change) for change in foreign]
        assert refused == [True] * len(foreign)
        marked = [await _is_refused(client, cluster, {"metadata": change}) for change in MARKS]
        assert marked == [False] * len(MARKS)


async def test_pods_of_labelled_namespaces_go_to_the_second_scheduler(
    cluster: Cluster, tmp_path: Path
) -> None:
    plain = await cluster.new_namespace()
    await _label(cluster, cluster.namespace, OPT_IN)
    folder = kustomization(tmp_path / "k", SECOND, ["namespace-opt-in"])
    async with installed(cluster, folder):
        await cluster.wait(lambda: _is_sent(cluster), what="the policy counts")
        other = {"schedulerName": "another"}
        assert await _scheduler_of(cluster, "other", spec=other) == "another"
        assert await _scheduler_of(cluster, "apart", namespace=plain) == "default-scheduler"
        # Whoever labels everything does not stop the scheduler from starting.
        await _label(cluster, "evenkeel", OPT_IN)
        await _label(cluster, "kube-system", OPT_IN)
        for pod in await pods_of(cluster, "evenkeel", "scheduler", 2, phase="Pending"):
            assert pod["spec"]["schedulerName"] == "default-scheduler"
        await _label(cluster, "kube-system", dict.fromkeys(OPT_IN))


def _new() -> Any:
    """Return a change that no earlier attempt can have made."""
    return {"metadata": {"annotations": {"attempt": secrets.token_hex(4)}}}


async def _is_refused(client: KubeClient, cluster: Cluster, change: Any) -> bool:
    try:
        await client.patch(PODS, change, name="app", namespace=cluster.namespace)
    except Invalid as error:
        return "the rebalancer may" in str(error)
    return False


async def _is_sent(cluster: Cluster) -> bool:
    landing = Landing(cluster)
    sent = await _scheduler_of(cluster, "app") == "evenkeel-scheduler"
    await landing.forget("app")
    return sent


async def _scheduler_of(
    cluster: Cluster, name: str, *, namespace: str = "", **template: Any
) -> str:
    pod = build.pod(name, namespace=namespace or cluster.namespace, **template)
    [made] = await cluster.create([pod])
    return str(made["spec"]["schedulerName"])


async def _label(cluster: Cluster, namespace: str, labels: Any) -> None:
    body = {"metadata": {"labels": labels}}
    path = f"/api/v1/namespaces/{namespace}"
    api = cluster.control_plane.api
    await asyncio.to_thread(api.request, "PATCH", path, body, content_type=MERGE)
