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
from bench.stands.rebalancer_process import rebalancer_as
from common.api.contract import (
    CORDONED_BY,
    EXPIRES,
    MIGRATION_ID_LABEL,
    MIGRATION_TIME,
    PRODUCT,
    PRODUCT_LABEL,
    TEMPORARY_PDB_LABEL,
)
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
from tests.support.releases import MUTATES, needs_mutation
from tests.support.repository import DEPLOY
from tests.support.stands.control_plane import Say
from tests.support.worlds.migrations import manifest_of, spec_of

pytestmark = pytest.mark.real

COMPONENTS = ("act", "bare-pods", "monitoring", "pod-guard", *(["namespace-opt-in"] * MUTATES))
MIGRATION_CRD = "customresourcedefinition.apiextensions.k8s.io/migrations.evenkeel.io"
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


@needs_mutation
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
        # Labels on everything do not stop the scheduler from starting.
        await _label(cluster, "evenkeel", OPT_IN)
        await _label(cluster, "kube-system", OPT_IN)
        for pod in await pods_of(cluster, "evenkeel", "scheduler", 2, phase="Pending"):
            assert pod["spec"]["schedulerName"] == "default-scheduler"
        await _label(cluster, "kube-system", dict.fromkeys(OPT_IN))


async def test_what_was_removed_too_early_is_undone_by_a_rebalancer_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As the page says: a move in progress keeps the CRD until what it did can be undone."""
    api, crds = cluster.control_plane.api, str(DEPLOY / "crds")
    [node] = await cluster.add_nodes(1)
    web = build.deployment("web", 2, namespace=cluster.namespace)
    [web] = [each for each in await cluster.create([web]) if each["kind"] == "Deployment"]
    cordoned = {
        "metadata": {"annotations": {CORDONED_BY: "evenkeel-rebalancer"}},
        "spec": {"unschedulable": True},
    }
    await asyncio.to_thread(
        api.request, "PATCH", f"/api/v1/nodes/{node}", cordoned, content_type=MERGE
    )
    await cluster.apply([_temporary_pdb(web)])
    await kubectl(cluster, "apply", "--server-side", "-k", crds)
    await kubectl(cluster, "wait", "--for=condition=Established", MIGRATION_CRD)
    move = manifest_of(spec_of(surge=True))
    move["metadata"]["finalizers"] = ["evenkeel.io/surge"]
    await cluster.apply([move])
    await kubectl(cluster, "delete", "-k", crds, "--wait=false")
    assert MIGRATION_CRD in await kubectl(cluster, "get", "crd", "-o=name")

    async def undone() -> bool:
        found = await asyncio.to_thread(api.get, f"/api/v1/nodes/{node}")
        left = await kubectl(cluster, "get", "pdb,crd", "-A", "-o=name")
        return not found["spec"].get("unschedulable") and not {
            each for each in left.split() if each == MIGRATION_CRD or "rescheduler-pdb" in each
        }

    own = {"leaderElection": {"namespace": cluster.namespace}}
    async with rebalancer_as(cluster.kubeconfig, tmp_path, settings=own):
        await cluster.wait(undone, what="nothing is left of the move")


def _temporary_pdb(workload: Any) -> Any:
    kind, name, uid = workload["kind"], workload["metadata"]["name"], workload["metadata"]["uid"]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": f"{name}-rescheduler-pdb",
            "namespace": workload["metadata"]["namespace"],
            "labels": {PRODUCT_LABEL: PRODUCT, TEMPORARY_PDB_LABEL: uid},
            "annotations": {EXPIRES: "2026-01-01T00:00:00Z"},
            "ownerReferences": [
                {"apiVersion": workload["apiVersion"], "kind": kind, "name": name, "uid": uid}
            ],
        },
        "spec": {"maxUnavailable": 1, "selector": workload["spec"]["selector"]},
    }


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
