# SPDX-License-Identifier: Apache-2.0
"""The rebalancer's rights on a real cluster: the shipped ones are enough, and all are needed.

Each right is taken away in turn while the program empties a node, which takes nearly all of
them. Wherever a person looks first, in the log, on the Migration or in an Event, the API
server's own words then say which right is missing. Nothing else may happen but that.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.stands.cluster import MERGE, Cluster
from bench.stands.extender_process import NAMESPACE, install
from bench.stands.rebalancer_process import ROLES, USER, RebalancerProcess, rebalancer_with
from common.api.contract import API_VERSION, MAINTENANCE_LABEL
from simulator import build
from tests.support.deploy.permissions import Right, shipped, without, words_of

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

SAID_S = 45.0
APPS = ("app-0", "app-1", "app-2")
REPLICAS = 4
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:evenkeel-rebalancer"
MIGRATIONS, PDBS, EVENTS, LEASES = (
    ("evenkeel.io", "migrations"),
    ("policy", "poddisruptionbudgets"),
    ("events.k8s.io", "events"),
    ("coordination.k8s.io", "leases"),
)
# What load it is does not matter here, so no one waits for measurements.
SETTINGS: Json = {
    "mode": "act",
    "enabledStrategies": ["NodeMaintenance"],
    "usageSource": "requests",
    "usageInterval": "1s",
    "reschedulingInterval": "1s",
    "lineageCooldown": "1s",
    "keepFinished": "1s",
    "leaderElection": {"enabled": False},
    "requireExtender": False,
}


@dataclass(frozen=True, slots=True)
class Case:
    """Rights that are missing, and what else it takes for someone to notice."""

    missing: tuple[Right, ...]
    settings: Json = field(default_factory=dict)
    rounds: int = 0
    """How often maintenance begins and ends before it begins for good."""
    unready: bool = False
    """Of all apps only what is on the node works, so that guards forbid its moves."""

    def __str__(self) -> str:
        return ", ".join(f"{verb} {resource}" for _, resource, verb in self.missing)


def one(
    group: str,
    resource: str,
    verb: str,
    *,
    rounds: int = 0,
    unready: bool = False,
    **settings: Any,
) -> Case:
    return Case(((group, resource, verb),), settings, rounds, unready)


WATCHED = (
    ("", "nodes"),
    ("", "pods"),
    ("", "namespaces"),
    ("", "persistentvolumes"),
    ("", "persistentvolumeclaims"),
    ("", "replicationcontrollers"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    PDBS,
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "csinodes"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("", "configmaps"),
    LEASES,
)
ELECTED: Json = {"leaderElection": {"enabled": True}}
CASES = (
    one("", "pods/eviction", "create"),
    one("", "pods", "patch"),
    one("", "pods", "get"),
    one("", "nodes", "patch"),
    one("", "nodes", "get"),
    one("", "nodes/status", "patch"),
    one("apps", "deployments", "get", surge="Always"),
    one("apps", "deployments/scale", "update", surge="Always"),
    one(*PDBS, "get"),
    one(*PDBS, "create"),
    one(*PDBS, "delete"),
    # A guard lives longer only for a move that takes more than half of its life.
    one(*PDBS, "patch", unready=True, temporaryPdb={"expiry": "8s"}),
    # What came of a move is written down some seconds after its end.
    one(*MIGRATIONS, "get", keepFinished="1h", lineageCooldown="1h"),
    one(*MIGRATIONS, "list"),
    one(*MIGRATIONS, "watch"),
    one(*MIGRATIONS, "create"),
    one(*MIGRATIONS, "delete"),
    one(*MIGRATIONS, "patch", surge="Always"),
    one("evenkeel.io", "migrations/status", "patch"),
    one(*EVENTS, "create"),
    # The same Event for the second time is a change of the first.
    one(*EVENTS, "patch", rounds=2),
    one(*LEASES, "create", **ELECTED),
    one(*LEASES, "get", **ELECTED),
    one(*LEASES, "update", **ELECTED),
    one("metrics.k8s.io", "nodes", "list", usageSource="metrics-server"),
    one("metrics.k8s.io", "pods", "list", usageSource="metrics-server"),
    # One program notices all of these at once, for it reads all kinds side by side.
    Case(tuple((*kind, "list") for kind in WATCHED)),
    Case(tuple((*kind, "watch") for kind in WATCHED)),
)


async def test_each_missing_right_is_named_by_a_clear_error(
    cluster: Cluster, tmp_path: Path
) -> None:
    await install(cluster)
    await cluster.add_nodes(4)
    await cluster.create(
        build.deployment(app, REPLICAS, namespace=cluster.namespace) for app in APPS
    )
    await cluster.wait(lambda: _all_run(cluster), what="all pods run")
    silent = {}
    for number, case in enumerate(CASES):
        unsaid = await _unsaid(cluster, tmp_path, case, f"case-{number}")
        if unsaid:
            silent[str(case)] = unsaid
        await _forget(cluster)
    assert not silent, f"no one was told: {silent}"


def test_every_right_of_the_rebalancer_is_taken_away_once() -> None:
    own = [d for d in yaml.safe_load_all(ROLES[0].read_text()) if "rules" in d]
    taken = {right for case in CASES for right in case.missing}
    assert set(shipped(own)) <= taken


async def test_the_account_may_do_what_is_shipped_and_nothing_else(cluster: Cluster) -> None:
    await install(cluster)
    documents = [d for file in ROLES for d in yaml.safe_load_all(file.read_text())]
    await cluster.bind(USER, *ROLES)
    await cluster.apply(documents)
    granted = set(shipped(documents))
    allowed = {
        right: await _may(cluster, right, name=NAMED.get(right[1], "evenkeel-rebalancer"))
        for right in granted | set(BEYOND)
    }
    assert {right for right, may in allowed.items() if may} == granted
    assert not await _may(cluster, ("", "configmaps", "list"), name="another")
    assert not await _may(cluster, (*LEASES, "update"), name="somebody-else")
    assert not await _may(cluster, (*LEASES, "update"), namespace="kube-system")


NAMED = {"configmaps": "evenkeel-pause"}
BEYOND: tuple[Right, ...] = (
    ("", "pods", "create"),
    ("", "pods", "delete"),
    ("", "pods", "update"),
    ("", "pods/exec", "create"),
    ("", "pods/log", "get"),
    ("", "pods/binding", "create"),
    ("", "nodes", "delete"),
    ("", "nodes", "create"),
    ("", "nodes/proxy", "get"),
    ("", "secrets", "get"),
    ("", "secrets", "list"),
    ("", "configmaps", "get"),
    ("", "serviceaccounts/token", "create"),
    ("apps", "deployments", "patch"),
    ("apps", "deployments/scale", "patch"),
    ("policy", "poddisruptionbudgets", "deletecollection"),
    ("evenkeel.io", "migrations", "deletecollection"),
    ("coordination.k8s.io", "leases", "delete"),
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
    ("", "users", "impersonate"),
)


async def _unsaid(cluster: Cluster, folder: Path, case: Case, name: str) -> list[Right]:
    """Run the program without some rights; return those that no one missed aloud."""
    roles, node = without(case.missing, ROLES, folder / name), await _fullest(cluster)
    settings = {**SETTINGS, **case.settings}
    unsaid = list(case.missing)

    async def all_said() -> bool:
        told = await _told(cluster, rebalancer)
        unsaid[:] = [right for right in unsaid if words_of(right) not in told]
        return not unsaid

    if case.unready:
        await _say_ready(cluster, "False", besides=node)
    async with rebalancer_with(cluster, folder, roles, settings=settings, name=name) as rebalancer:
        for _ in range(case.rounds):
            await cluster.maintain(node, on=True)
            await cluster.wait(lambda: _is_cordoned(cluster, node), what="it is cordoned")
            await cluster.maintain(node, on=False)
            await cluster.wait(lambda: _is_free(cluster, node), what="it takes pods again")
        await cluster.maintain(node, on=True)
        try:
            await cluster.wait(all_said, SAID_S)
        except AssertionError:
            return unsaid
    return []


async def _told(cluster: Cluster, rebalancer: RebalancerProcess) -> str:
    """Return all that a person would see, without quotes."""
    api = cluster.control_plane.api
    paths = (f"/apis/{API_VERSION}/migrations", "/apis/events.k8s.io/v1/events")
    found = [await asyncio.to_thread(api.get, path) for path in paths]
    seen = rebalancer.log.read_text() + json.dumps(found)
    return seen.replace("\\", "").replace('"', "")


async def _may(
    cluster: Cluster, right: Right, *, namespace: str = NAMESPACE, name: str = "evenkeel-rebalancer"
) -> bool:
    group, resource, verb = right
    plain, _, sub = resource.partition("/")
    asked = {"namespace": namespace, "name": name, "verb": verb, "group": group}
    spec = {
        "user": ACCOUNT,
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "resourceAttributes": {**asked, "resource": plain, "subresource": sub},
    }
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    api = cluster.control_plane.api
    answer = await asyncio.to_thread(api.request, "POST", path, {**kind, "spec": spec})
    return bool(answer["status"]["allowed"])


async def _say_ready(cluster: Cluster, status: str, *, besides: str = "") -> None:
    """Have all pods say that they work, or do not; those of one node are left alone."""
    api = cluster.control_plane.api
    for pod in await _pods(cluster):
        if pod["spec"]["nodeName"] != besides:
            path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod['metadata']['name']}/status"
            said = [
                {**c, "status": status} if c["type"] in ("Ready", "ContainersReady") else c
                for c in pod["status"]["conditions"]
            ]
            body = {"status": {"conditions": said}}
            await asyncio.to_thread(api.request, "PATCH", path, body, content_type=MERGE)


async def _forget(cluster: Cluster) -> None:
    """Take away what a run has left, so that the next one starts afresh."""
    api = cluster.control_plane.api
    await _say_ready(cluster, "True")
    for node in (await asyncio.to_thread(api.get, "/api/v1/nodes"))["items"]:
        ours = [k for k in node["metadata"]["annotations"] if k.startswith("evenkeel.io/")]
        metadata = {"annotations": dict.fromkeys(ours), "labels": {MAINTENANCE_LABEL: None}}
        body = {"metadata": metadata, "spec": {"unschedulable": None}}
        await cluster.patch_node(node["metadata"]["name"], body)
    await cluster.forget_migrations()
    for app in APPS:
        # A surge may have been under way.
        await cluster.kubectl("scale", f"deployment/{app}", f"--replicas={REPLICAS}")
    for path in (
        f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events",
    ):
        await asyncio.to_thread(api.delete, path)
    await cluster.wait(lambda: _all_run(cluster), what="all pods run")


async def _pods(cluster: Cluster) -> list[Json]:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    found: list[Json] = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return found


async def _fullest(cluster: Cluster) -> str:
    """Return the node with the most pods."""
    [(node, _)] = Counter(p["spec"]["nodeName"] for p in await _pods(cluster)).most_common(1)
    return str(node)


async def _all_run(cluster: Cluster) -> bool:
    pods = await _pods(cluster)
    whole = len(pods) == len(APPS) * REPLICAS
    return whole and all(pod["status"]["phase"] == "Running" for pod in pods)


async def _node(cluster: Cluster, name: str) -> Json:
    return await asyncio.to_thread(cluster.control_plane.api.get, f"/api/v1/nodes/{name}")


async def _is_cordoned(cluster: Cluster, name: str) -> bool:
    return bool((await _node(cluster, name))["spec"].get("unschedulable"))


async def _is_free(cluster: Cluster, name: str) -> bool:
    return not await _is_cordoned(cluster, name)
