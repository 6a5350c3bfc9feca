# SPDX-License-Identifier: Apache-2.0
"""What a stolen token can do on a real API server: the policies hold whatever roles grant.

The accounts are bound to `cluster-admin` here, the worst role there is. What is left to them
is what the programs do, and what later work will need; everything else is refused with words.
With the shipped roles alone `tests/e2e/loop/test_rights.py` shows how little is granted at all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.stands.cluster import RBAC, Cluster
from bench.stands.rebalancer_process import rebalancer_as
from common.api.contract import (
    COPY_OF,
    CORDONED_BY,
    EXPIRES,
    MIGRATION_ID_LABEL,
    MIGRATION_TIME,
    TEMPORARY_PDB_LABEL,
)
from common.kube.client import KubeClient
from common.kube.errors import ApiError
from simulator import build
from tests.support.deploy.render import CONTROL_PLANE, installed, kustomization
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
NODE_OWNER = {"apiVersion": "v1", "kind": "Node", "name": "any", "uid": "any"}
COPY = "rescheduled-app-1800000000"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
OURS = {"app.kubernetes.io/name": "evenkeel"}
EMPTYING: Json = {
    "mode": "act",
    "enabledStrategies": ["NodeMaintenance"],
    "usageSource": "requests",
    "usageInterval": "1s",
    "reschedulingInterval": "1s",
    "requireExtender": False,
    "barePods": "replace",
    "leaderElection": {"enabled": True, "namespace": "evenkeel"},
}


@dataclass(frozen=True)
class Attempt:
    """One request of an account; `{ns}`, `{node}` and `{uid}` are filled in."""

    words: str
    method: str
    path: str
    body: Any = None
    kind: str = MERGE

    def __str__(self) -> str:
        return self.words

    def filled(self, names: Mapping[str, str]) -> Attempt:
        text = json.dumps([self.path, self.body])
        for key, value in names.items():
            text = text.replace(f"<{key}>", value)
        path, body = json.loads(text)
        return Attempt(self.words, self.method, path, body, self.kind)


def patch(words: str, path: str, body: Any, kind: str = MERGE) -> Attempt:
    return Attempt(words, "PATCH", path, body, kind)


def post(words: str, path: str, body: Any) -> Attempt:
    return Attempt(words, "POST", path, body, "application/json")


def put(words: str, path: str, body: Any) -> Attempt:
    return Attempt(words, "PUT", path, body, "application/json")


def delete(words: str, path: str, body: Any = None) -> Attempt:
    return Attempt(words, "DELETE", path, body, "application/json")


def meta(**fields: Any) -> Json:
    return {"metadata": fields}


PODS, POD = "/api/v1/namespaces/<ns>/pods", "/api/v1/namespaces/<ns>/pods/app"
NODE = "/api/v1/nodes/<node>"
PDBS = "/apis/policy/v1/namespaces/<ns>/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
DEPLOYMENT = "/apis/apps/v1/namespaces/<ns>/deployments/web"


def copy(**changes: Any) -> Json:
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {
        "containers": [{"name": "app", "image": "app", "securityContext": safe}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        **changes.pop("spec", {}),
    }
    metadata = {"name": COPY, "annotations": {COPY_OF: "any"}, **changes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def budget(*, name: str = "web-rescheduler-pdb", uid: str = "<uid>", **changes: Any) -> Json:
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "minAvailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        **changes.pop("spec", {}),
    }
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid}
    metadata = {
        "name": name,
        "labels": {**OURS, TEMPORARY_PDB_LABEL: "<uid>"},
        "annotations": {EXPIRES: "2030-01-01T00:00:00.000000Z"},
        "ownerReferences": [owner],
        **changes,
    }
    spec = {key: value for key, value in spec.items() if value is not None}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": spec,
    }


def lease(name: str, **metadata: Any) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, **metadata},
        "spec": {"holderIdentity": "me"},
    }


def condition(kind: str, **fields: Any) -> Json:
    return {"type": kind, "status": "True", "reason": "Any", "message": "any", **fields}


ALLOWED = (
    patch(
        "mark a pod",
        POD,
        meta(labels={MIGRATION_ID_LABEL: "a"}, annotations={MIGRATION_TIME: "now"}),
    ),
    patch("say which replica goes first", POD, meta(annotations={DELETION_COST: "-5"})),
    patch(
        "take the marks away",
        POD,
        meta(
            labels={MIGRATION_ID_LABEL: None},
            annotations={MIGRATION_TIME: None, DELETION_COST: None},
        ),
    ),
    post("make a copy", PODS, copy()),
    patch("mark a copy", f"{PODS}/{COPY}", meta(labels={MIGRATION_ID_LABEL: "a"})),
    delete("take a copy back", f"{PODS}/{COPY}"),
    patch(
        "cordon a node",
        NODE,
        {"spec": {"unschedulable": True}, **meta(annotations={CORDONED_BY: "evenkeel-rebalancer"})},
    ),
    patch(
        "uncordon a node",
        NODE,
        {"spec": {"unschedulable": None}, **meta(annotations={CORDONED_BY: None})},
    ),
    patch(
        "say how a node is",
        f"{NODE}/status",
        {"status": {"conditions": [condition("evenkeel.io/Level")]}},
        STRATEGIC,
    ),
    patch(
        "say it again",
        f"{NODE}/status",
        {"status": {"conditions": [condition("evenkeel.io/Level", status="False")]}},
        STRATEGIC,
    ),
    post("make a temporary budget", PDBS, budget()),
    patch(
        "put off its end",
        f"{PDBS}/web-rescheduler-pdb",
        meta(annotations={EXPIRES: "2031-01-01T00:00:00.000000Z"}),
    ),
    delete("remove it", f"{PDBS}/web-rescheduler-pdb"),
    post(
        "make a budget by share", PDBS, budget(spec={"minAvailable": None, "maxUnavailable": "25%"})
    ),
    delete("remove that", f"{PDBS}/web-rescheduler-pdb"),
    patch("one replica more", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 3}}),
    patch("one replica less", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 2}}),
    post("take its Lease", LEASES.format("evenkeel"), lease("evenkeel-rebalancer")),
    patch(
        "renew its Lease",
        LEASES.format("evenkeel") + "/evenkeel-rebalancer",
        {"spec": {"holderIdentity": "you"}},
    ),
    delete("give its Lease up", LEASES.format("evenkeel") + "/evenkeel-rebalancer"),
    post(
        "evict a pod",
        f"{POD}/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "app"}},
    ),
)

REFUSED = (
    # pods
    patch(
        "change an image",
        POD,
        {"spec": {"containers": [{"name": "app", "image": "evil"}]}},
        STRATEGIC,
    ),
    patch(
        "apply an image",
        POD,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            **meta(name="app"),
            "spec": {"containers": [{"name": "app", "image": "evil"}]},
        },
        APPLY,
    ),
    patch("shorten a pod's life", POD, {"spec": {"activeDeadlineSeconds": 60}}),
    patch(
        "tolerate a taint",
        POD,
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
        JSON_PATCH,
    ),
    patch("move a pod behind a Service", POD, meta(labels={"app": "other"})),
    patch("remove a label", POD, meta(labels={"app": None})),
    patch("hide a label among marks", POD, meta(labels={"new": "label", MIGRATION_ID_LABEL: "a"})),
    patch("annotate a pod", POD, meta(annotations={"new": "annotation"})),
    patch("call a pod a copy", POD, meta(annotations={COPY_OF: "any"})),
    patch("let a pod never end", POD, meta(finalizers=["example.com/stay"])),
    patch("give a pod an owner", POD, meta(ownerReferences=[NODE_OWNER])),
    patch("write a pod's status", f"{POD}/status", {"status": {"phase": "Failed"}}),
    patch(
        "resize a pod",
        f"{PODS}/waits/resize",
        {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}},
        STRATEGIC,
    ),
    patch(
        "debug a pod",
        f"{POD}/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [{"name": "evil", "image": "evil"}]}},
        STRATEGIC,
    ),
    post("run a command", f"{POD}/exec?command=sh", None),
    post(
        "place a pod",
        f"{PODS}/waits/binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "waits"},
            "target": {"kind": "Node", "name": "<node>"},
        },
    ),
    delete("delete a pod", POD),
    delete("delete a pod as a trial", f"{POD}?dryRun=All"),
    delete("delete all pods", PODS),
    post(
        "end a pod without grace",
        f"{POD}/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "app"},
            "deleteOptions": {"gracePeriodSeconds": 0},
        },
    ),
    post("make a pod", PODS, copy(name="mine")),
    post("make a pod by a part of its name", PODS, copy(name=None, generateName="rescheduled-")),
    post("make a pod that is no copy", PODS, copy(annotations={})),
    post("make a copy on a node", PODS, copy(spec={"nodeName": "<node>"})),
    post("make a copy with an owner", PODS, copy(ownerReferences=[NODE_OWNER])),
    post("make a copy in the host's network", PODS, copy(spec={"hostNetwork": True})),
    post("make a copy that sees the host's processes", PODS, copy(spec={"hostPID": True})),
    post(
        "make a copy with the host's files",
        PODS,
        copy(spec={"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}),
    ),
    post(
        "make a privileged copy",
        PODS,
        copy(
            spec={
                "containers": [
                    {"name": "app", "image": "app", "securityContext": {"privileged": True}}
                ]
            }
        ),
    ),
    post(
        "make a privileged start of a copy",
        PODS,
        copy(
            spec={
                "initContainers": [
                    {"name": "one", "image": "app", "securityContext": {"privileged": True}}
                ]
            }
        ),
    ),
    post(
        "make a copy with more capabilities",
        PODS,
        copy(
            spec={
                "containers": [
                    {
                        "name": "app",
                        "image": "app",
                        "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
                    }
                ]
            }
        ),
    ),
    post(
        "make a copy with a port of the host",
        PODS,
        copy(
            spec={
                "containers": [
                    {"name": "a", "image": "a", "ports": [{"containerPort": 1, "hostPort": 1}]}
                ]
            }
        ),
    ),
    post("make a copy in kube-system", "/api/v1/namespaces/kube-system/pods", copy()),
    post("make a copy beside itself", "/api/v1/namespaces/evenkeel/pods", copy()),
    # nodes
    patch("taint a node", NODE, {"spec": {"taints": [{"key": "evil", "effect": "NoExecute"}]}}),
    patch(
        "taint a node while cordoning it",
        NODE,
        {"spec": {"unschedulable": True, "taints": [{"key": "evil", "effect": "NoExecute"}]}},
        STRATEGIC,
    ),
    patch("give a node another machine", NODE, {"spec": {"providerID": "evil://"}}),
    patch("label a node", NODE, meta(labels={"node-role.kubernetes.io/control-plane": ""})),
    patch(
        "apply a label to a node",
        NODE,
        {"apiVersion": "v1", "kind": "Node", **meta(name="<node>", labels={"a": "b"})},
        APPLY,
    ),
    patch(
        "annotate a node",
        NODE,
        meta(annotations={"volumes.kubernetes.io/controller-managed-attach-detach": "false"}),
    ),
    patch("remove a node's annotation", NODE, meta(annotations={"kwok.x-k8s.io/node": None})),
    patch("let a node never end", NODE, meta(finalizers=["example.com/stay"])),
    patch("let a node be collected", NODE, meta(ownerReferences=[NODE_OWNER])),
    patch(
        "call a node ready",
        f"{NODE}/status",
        {"status": {"conditions": [condition("Ready", status="False")]}},
        STRATEGIC,
    ),
    patch(
        "add a foreign condition",
        f"{NODE}/status",
        {"status": {"conditions": [condition("DiskPressure2")]}},
        STRATEGIC,
    ),
    patch(
        "drop the conditions of a node",
        f"{NODE}/status",
        {"status": {"conditions": [condition("evenkeel.io/Level")]}},
    ),
    patch(
        "promise more than a node has",
        f"{NODE}/status",
        {"status": {"allocatable": {"cpu": "1000"}}},
    ),
    patch(
        "move a node",
        f"{NODE}/status",
        {"status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]}},
    ),
    patch("label a node by its status", f"{NODE}/status", meta(labels={"a": "b"})),
    patch("annotate a node by its status", f"{NODE}/status", meta(annotations={CORDONED_BY: "me"})),
    delete("delete a node", NODE),
    post(
        "make a node",
        "/api/v1/nodes",
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evil"}},
    ),
    Attempt("ask a kubelet", "GET", f"{NODE}/proxy/pods"),
    # budgets
    delete("delete a foreign budget", f"{PDBS}/theirs"),
    delete("delete all budgets", PDBS),
    patch("loosen a foreign budget", f"{PDBS}/theirs", {"spec": {"maxUnavailable": 5}}),
    patch(
        "take a foreign budget over",
        f"{PDBS}/theirs",
        meta(labels={**OURS, TEMPORARY_PDB_LABEL: "any"}),
    ),
    patch(
        "take over one of that name",
        f"{PDBS}/db-rescheduler-pdb",
        meta(labels={**OURS, TEMPORARY_PDB_LABEL: "any"}),
    ),
    delete("delete a foreign one of that name", f"{PDBS}/db-rescheduler-pdb"),
    patch(
        "tighten a budget of ours",
        f"{PDBS}/ours-rescheduler-pdb",
        {"spec": {"minAvailable": "100%"}},
    ),
    patch(
        "have a budget of ours select all",
        f"{PDBS}/ours-rescheduler-pdb",
        {"spec": {"selector": {"matchLabels": None}}},
    ),
    patch(
        "have a budget of ours stay",
        f"{PDBS}/ours-rescheduler-pdb",
        meta(finalizers=["example.com/stay"]),
    ),
    patch(
        "have a budget of ours be without an owner",
        f"{PDBS}/ours-rescheduler-pdb",
        meta(ownerReferences=[]),
    ),
    patch(
        "have a budget of ours never end",
        f"{PDBS}/ours-rescheduler-pdb",
        meta(annotations={EXPIRES: None}),
    ),
    patch(
        "count the pods of a budget", f"{PDBS}/theirs/status", {"status": {"disruptionsAllowed": 5}}
    ),
    post("make a budget of another name", PDBS, budget(name="mine")),
    post("make a budget of another workload's name", PDBS, budget(name="db2-rescheduler-pdb")),
    post("make a budget without the label", PDBS, budget(labels=OURS)),
    post("make a budget without an owner", PDBS, budget(ownerReferences=[])),
    post("make a budget of another owner", PDBS, budget(uid="any")),
    post("make a budget for ever", PDBS, budget(annotations={})),
    post("make a budget that keeps all", PDBS, budget(spec={"minAvailable": "100%"})),
    post(
        "make a budget that lets none go",
        PDBS,
        budget(spec={"minAvailable": None, "maxUnavailable": 0}),
    ),
    post(
        "make a budget that lets no share go",
        PDBS,
        budget(spec={"minAvailable": None, "maxUnavailable": "0%"}),
    ),
    post("make a budget for all pods", PDBS, budget(spec={"selector": {}})),
    post(
        "make a budget that keeps broken pods",
        PDBS,
        budget(spec={"unhealthyPodEvictionPolicy": "IfHealthyBudget"}),
    ),
    # workloads
    patch("two replicas more", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 4}}),
    patch("no replicas", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 0}}),
    patch(
        "change a template",
        DEPLOYMENT,
        {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}},
    ),
    patch("scale without scale", DEPLOYMENT, {"spec": {"replicas": 3}}),
    delete("delete a workload", DEPLOYMENT),
    # Leases
    post("lead elsewhere", LEASES.format("kube-system"), lease("evenkeel-rebalancer")),
    post("lead in another's place", LEASES.format("evenkeel"), lease("another")),
    post("call itself an extender", LEASES.format("evenkeel"), lease("evenkeel-extender-evil")),
    put(
        "schedule in another's place",
        # One that does not exist: a PUT makes it. Where it exists the API server asks for its
        # resourceVersion before any policy (AllowUnconditionalUpdate in lease/strategy.go).
        LEASES.format("kube-system") + "/another-scheduler",
        lease("another-scheduler", namespace="kube-system"),
    ),
    patch(
        "have a node look alive",
        LEASES.format("kube-node-lease") + "/<node>",
        {"spec": {"holderIdentity": "me"}},
    ),
    delete("have a node look dead", LEASES.format("kube-node-lease") + "/<node>"),
    delete("delete an extender's Lease", LEASES.format("evenkeel") + "/evenkeel-extender-a"),
    post(
        "take a Lease that stays",
        LEASES.format("evenkeel"),
        lease("evenkeel-rebalancer", finalizers=["example.com/stay"]),
    ),
)

EXTENDER_ALLOWED = (
    post("take a Lease", LEASES.format("evenkeel"), lease("evenkeel-extender-b")),
    patch(
        "renew it",
        LEASES.format("evenkeel") + "/evenkeel-extender-b",
        {"spec": {"holderIdentity": "b"}},
    ),
    delete("give it up", LEASES.format("evenkeel") + "/evenkeel-extender-b"),
    delete("remove one that was left", LEASES.format("evenkeel") + "/evenkeel-extender-a"),
)
EXTENDER_REFUSED = (
    patch("mark a pod", POD, meta(labels={MIGRATION_ID_LABEL: "a"})),
    delete("delete a pod", POD),
    post(
        "evict a pod",
        f"{POD}/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "app"}},
    ),
    patch("cordon a node", NODE, {"spec": {"unschedulable": True}}),
    patch(
        "write a node's status",
        f"{NODE}/status",
        {"status": {"conditions": [condition("evenkeel.io/Level")]}},
        STRATEGIC,
    ),
    post("make a budget", PDBS, budget()),
    patch("scale", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 3}}),
    post(
        "start a move",
        "/apis/evenkeel.io/v1alpha1/migrations",
        {
            "apiVersion": "evenkeel.io/v1alpha1",
            "kind": "Migration",
            "metadata": {"name": "m"},
            "spec": {
                "pod": {"namespace": "<ns>", "name": "app", "uid": "m"},
                "replacementName": COPY,
                "source": "<node>",
                "target": "other",
                "strategy": "LoadBalancing",
                "reason": "Spread",
                "deadline": "2030-01-01T00:00:00Z",
            },
        },
    ),
    post("lead", LEASES.format("evenkeel"), lease("evenkeel-rebalancer")),
    post("take a Lease elsewhere", LEASES.format("kube-system"), lease("evenkeel-extender-b")),
    patch(
        "have a node look alive",
        LEASES.format("kube-node-lease") + "/<node>",
        {"spec": {"holderIdentity": "me"}},
    ),
)


@asynccontextmanager
async def stolen(
    cluster: Cluster, folder: Path, base: str, account: str
) -> AsyncIterator[tuple[KubeClient, dict[str, str]]]:
    """Install, give the account every right there is, and act with its token."""
    [node] = await cluster.add_nodes(1)
    made = await cluster.create(_objects(cluster.namespace))
    [web] = [each for each in made if each["kind"] == "Deployment"]
    names = {"ns": cluster.namespace, "node": node, "uid": web["metadata"]["uid"]}
    ours = budget(name="ours-rescheduler-pdb", spec={"selector": {"matchLabels": {"app": "z"}}})
    await cluster.create([Attempt("", "", "", ours).filled(names).body])
    try:
        async with installed(cluster, kustomization(folder / "k", base)):
            namespace, name = account.split("/")
            await cluster.apply(
                [
                    all_rights(cluster, name, namespace),
                    lease("evenkeel-extender-a", namespace="evenkeel"),
                ]
            )
            async with cluster.client(service_account=account) as client:
                yield client, names
    finally:
        await _without_ours(cluster)


async def _without_ours(cluster: Cluster) -> None:
    """Delete our budget: its namespace goes later, and a rebalancer would take it for its own."""
    path = f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets"
    delete = cluster.control_plane.api.delete
    await asyncio.to_thread(delete, f"{path}/ours-rescheduler-pdb")


def _objects(namespace: str) -> list[Json]:
    return [
        build.pod("app", namespace=namespace, labels={"app": "app"}),
        build.pod("waits", namespace=namespace, spec={"schedulerName": "nobody"}),
        build.deployment("web", 2, namespace=namespace),
        build.pdb("theirs", namespace=namespace, match={"app": "x"}, max_unavailable=1),
        build.pdb("db-rescheduler-pdb", namespace=namespace, match={"app": "y"}, max_unavailable=1),
    ]


async def told(client: KubeClient, attempt: Attempt, names: Mapping[str, str]) -> str:
    """Return the words with which the API server refuses; empty if it does as asked."""
    asked = attempt.filled(names)
    path, _, query = asked.path.partition("?")
    params = dict(part.split("=") for part in query.split("&")) if query else {}
    if asked.kind == APPLY:
        params |= {"fieldManager": "test", "force": "true"}
    try:
        await client.request(
            asked.method, path, params=params, body=asked.body, content_type=asked.kind
        )
    except ApiError as error:
        return str(error) or "refused"
    return ""


def is_denied(words: str) -> bool:
    """Tell whether a policy of ours refuses in words of its own, not by an error."""
    return (
        "ValidatingAdmissionPolicy 'evenkeel-" in words
        and "denied request: " in words
        and ("expression" not in words)
    )


async def not_denied(
    client: KubeClient, attempts: Iterable[Attempt], names: Mapping[str, str]
) -> dict[str, str]:
    """Return the attempts that no policy of ours refuses, with what came of them."""
    found = {str(attempt): await told(client, attempt, names) for attempt in attempts}
    return {attempt: words for attempt, words in found.items() if not is_denied(words)}


async def refused(
    client: KubeClient, attempts: Iterable[Attempt], names: Mapping[str, str]
) -> dict[str, str]:
    """Return the attempts that do not succeed, with the words."""
    found = {str(attempt): await told(client, attempt, names) for attempt in attempts}
    return {attempt: words for attempt, words in found.items() if words}


ONE_OF_EACH = (
    delete("a", POD),
    delete("a", NODE),
    delete("a", f"{PDBS}/theirs"),
    delete("a", DEPLOYMENT),
    post("a", LEASES.format("<ns>"), lease("another")),
)


async def in_force(cluster: Cluster, client: KubeClient, names: Mapping[str, str]) -> None:
    """Wait until every policy counts: the API server takes them up one by one."""
    for attempt in ONE_OF_EACH:
        trial = replace(attempt, path=f"{attempt.path}?dryRun=All")
        asked = partial(_denied, client, trial, names)
        await cluster.wait(asked, what=f"{trial.path} is guarded")


async def test_a_stolen_rebalancer_token_can_do_no_more_than_the_rebalancer_does(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    account = "evenkeel/evenkeel-rebalancer"
    async with stolen(cluster, tmp_path, "base", account) as (client, names):
        await in_force(cluster, client, names)
        before = await _seen(cluster, names)
        assert await not_denied(client, REFUSED, names) == {}
        assert await _seen(cluster, names) == before
        assert await refused(client, ALLOWED, names) == {}
        say(f"{len(REFUSED)} abuses of a stolen token refused, {len(ALLOWED)} uses allowed")


async def test_with_the_policies_the_rebalancer_does_all_its_work(
    cluster: Cluster, tmp_path: Path
) -> None:
    node, *_ = await cluster.add_nodes(4)
    await cluster.create(
        [
            build.deployment("web", 4, namespace=cluster.namespace),
            build.pod("solo", namespace=cluster.namespace, node=node),
        ]
    )
    await cluster.wait(lambda: _running(cluster, 5), what="all pods run")
    async with installed(cluster, kustomization(tmp_path / "k", "base", ["bare-pods"])):
        account = "evenkeel/evenkeel-rebalancer"
        async with cluster.client(service_account=account) as client:
            names = {"ns": cluster.namespace, "node": node}
            await cluster.wait(
                lambda: _denied(client, patch("a", f"{PODS}/solo", meta(labels={"a": "b"})), names),
                what="the policies count",
            )
        kubeconfig = await cluster.kubeconfig_of(service_account=account)
        async with rebalancer_as(kubeconfig, tmp_path, settings=EMPTYING) as rebalancer:
            await rebalancer.announced()
            await cluster.maintain(node, on=True)
            await cluster.wait(lambda: _emptied(cluster, node), 90.0, "the node is emptied")
            await cluster.maintain(node, on=False)
            await cluster.wait(lambda: _is_open(cluster, node), what="it takes pods again")
            await cluster.wait(lambda: _unguarded(cluster), what="temporary PDBs are removed")
            counted = await rebalancer.metrics()
        assert counted.total("temporary_pdbs_total", result="created") >= 1
        assert counted.total("pod_copies_total", result="created") == 1
        assert "ValidatingAdmissionPolicy" not in rebalancer.log.read_text()


async def _denied(client: KubeClient, attempt: Attempt, names: Mapping[str, str]) -> bool:
    return is_denied(await told(client, attempt, names))


async def _pods(cluster: Cluster) -> list[Json]:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    found: list[Json] = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return found


async def _running(cluster: Cluster, count: int) -> bool:
    pods = await _pods(cluster)
    return len(pods) == count and all(p["status"]["phase"] == "Running" for p in pods)


async def _emptied(cluster: Cluster, node: str) -> bool:
    pods = await _pods(cluster)
    return all(p["spec"].get("nodeName") != node for p in pods) and await _running(cluster, 5)


async def _unguarded(cluster: Cluster) -> bool:
    path = f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets"
    found = await asyncio.to_thread(cluster.control_plane.api.get, path)
    return not found["items"]


async def _is_open(cluster: Cluster, node: str) -> bool:
    found = await asyncio.to_thread(cluster.control_plane.api.get, f"/api/v1/nodes/{node}")
    return not found["spec"].get("unschedulable")


@pytest.mark.parametrize(
    ("base", "account"),
    [
        ("base", "evenkeel/evenkeel-extender"),
        (CONTROL_PLANE, "evenkeel-control-plane/evenkeel-extender"),
    ],
)
async def test_a_stolen_extender_token_can_do_no_more_than_the_extender_does(
    cluster: Cluster, tmp_path: Path, base: str, account: str
) -> None:
    async with stolen(cluster, tmp_path, base, account) as (client, names):
        await in_force(cluster, client, names)
        assert await not_denied(client, EXTENDER_REFUSED, names) == {}
        assert await refused(client, EXTENDER_ALLOWED, names) == {}


async def test_an_extender_keeps_its_lease_whatever_the_namespace_is_called(
    cluster: Cluster, tmp_path: Path
) -> None:
    home = f"{cluster.namespace}-control-plane"
    host = f"{home}-control-plane"
    elsewhere = LEASES.format(cluster.namespace) + "?dryRun=All"
    trial = post("a", elsewhere, lease("evenkeel-extender-a"))
    own = LEASES.format(home)
    async with (
        installed(cluster, kustomization(tmp_path / "k", CONTROL_PLANE)),
        namespaces(cluster, home, host),
    ):
        await cluster.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": "evenkeel-extender", "namespace": host},
                },
                all_rights(cluster, "evenkeel-extender", host),
            ]
        )
        async with cluster.client(service_account=f"{host}/evenkeel-extender") as client:
            await cluster.wait(partial(_denied, client, trial, {}), what="Leases are guarded")
            taken = post("a", own, lease("evenkeel-extender-a"))
            given_up = delete("a", f"{own}/evenkeel-extender-a")
            assert await refused(client, [taken, given_up], {}) == {}


@asynccontextmanager
async def namespaces(cluster: Cluster, *names: str) -> AsyncIterator[None]:
    """Have namespaces for as long as this lasts."""
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in names]
    await cluster.apply(made)
    try:
        yield
    finally:
        await cluster.kubectl("delete", "namespace", *names)


def all_rights(cluster: Cluster, name: str, namespace: str) -> Json:
    """Return a binding that gives an account the worst role there is."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{cluster.namespace}-stolen"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


async def _seen(cluster: Cluster, names: Mapping[str, str]) -> Any:
    """Return what the refused attempts were about, as it stands."""
    api, ns = cluster.control_plane.api, names["ns"]
    paths = [
        f"/api/v1/namespaces/{ns}/pods/app",
        f"/apis/apps/v1/namespaces/{ns}/deployments/web",
        f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
    ]
    found = [await asyncio.to_thread(api.get, path) for path in paths]
    node = await asyncio.to_thread(api.get, f"/api/v1/nodes/{names['node']}")
    *objects, budgets = found
    specs = [each["spec"] for each in (*objects, node, *budgets["items"])]
    labels = [found[0]["metadata"]["labels"], node["metadata"]["labels"]]
    return msgspec.json.encode([specs, labels])
