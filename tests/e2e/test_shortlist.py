# SPDX-License-Identifier: Apache-2.0
"""A shortlist loses no pod: with the real kube-scheduler, on random clusters and pods.

The clusters are those that our fit is compared on, larger, and with full nodes among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.clock import SYSTEM
from common.kube.api import PatchKind
from common.kube.client import KubeClient
from controlplane.api import Json
from controlplane.cluster import ControlPlane
from simulator import build
from tests.e2e.shortlist_stand import SIZE, Accepts, Ours, Recorder, between
from tests.e2e.test_fit_oracle import admin, clusters, first_seed
from tests.support.oracles.fit import FILTERING, write_config
from tests.support.oracles.fit_stand import PAUSE_S, FitStand, bare_control_plane
from tests.support.stands.control_plane import Say
from tests.support.worlds.fit_cases import random_case
from tests.support.worlds.fit_dice import ClusterCase, name_of

pytestmark = pytest.mark.real

CLUSTERS, NODES, PODS = 4, 40, 500
ALONE = 60
"""How many pods of a cluster are placed one after the other, so that none is in the other's way."""
FULL_NODES = 6
PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of which only the scheduler thinks."""
    folder = tmp_path_factory.mktemp("shortlist")
    with bare_control_plane(folder, write_config(folder, FILTERING)) as plane:
        yield plane


async def test_every_pod_that_fits_somewhere_is_placed(
    plane: ControlPlane, tmp_path: Path, say: Say
) -> None:
    first, count = first_seed(), clusters(CLUSTERS)
    say(f"EVENKEEL_FIT_SEED={first}, {count} clusters of {NODES} nodes and {PODS} pods")
    async with admin(plane) as client, between(plane, tmp_path) as (recorder, ours):
        stand = FitStand(client)
        placed = 0
        for seed in range(first, first + count):
            case = crowded(random_case(seed, nodes=(NODES, NODES), pods=PODS))
            placed += await judge(stand, recorder, ours, case)
        given = await ours.count("shortlists_total", result="given")
    lists = [(each[0], recorder.left[uid][0]) for uid, each in recorder.sent.items()]
    shorter = sum(left < sent for sent, left in lists)
    say(f"{count * PODS} pods: {len(lists)} fit somewhere, {placed} were bound, the others "
        f"wait for a volume; {given:.0f} shortlists, {shorter} shorter than the list")  # fmt: skip
    assert given > count * PODS / 10
    assert shorter > count * PODS / 10


async def judge(stand: FitStand, recorder: Recorder, ours: Ours, case: ClusterCase) -> int:
    """Let the pods of a cluster be placed; return how many of them got a node."""
    recorder.accepts = bindable(case)
    async with stand.cluster(replace(case, candidates=[])):
        await ours.knows(case.nodes)
        made = [pod for batch in batches(case) for pod in await stand.create(batch)]
        uids = {pod["metadata"]["uid"] for pod in made}
        pods = await settled(stand, recorder, case, uids)
    for uid in uids & recorder.sent.keys():
        attempts = zip(recorder.sent[uid], recorder.left[uid], strict=True)
        assert all(left and left <= sent for sent, left in attempts), pods[uid]
    return sum("nodeName" in pod["spec"] for pod in pods.values())


async def test_the_same_pods_get_a_node_as_with_all_nodes(
    plane: ControlPlane, tmp_path: Path, say: Say
) -> None:
    first, count = first_seed(), clusters(CLUSTERS)
    placed: dict[int | str, set[str]] = {}
    async with admin(plane) as client:
        stand = FitStand(client)
        for size in (SIZE, "off"):
            async with between(plane, tmp_path, shortlist=size, veto=True) as (recorder, ours):
                cases = [
                    crowded(random_case(seed, nodes=(NODES, NODES), pods=ALONE))
                    for seed in range(first, first + count)
                ]
                found = [await placed_alone(stand, recorder, ours, case) for case in cases]
                placed[size] = set().union(*found)
                given = await ours.count("shortlists_total", result="given")
                say(f"EVENKEEL_FIT_SEED={first}, shortlist: {size}: {len(placed[size])} of "
                    f"{count * ALONE} pods got a node, {given:.0f} shortlists")  # fmt: skip
                assert (given > count * ALONE / 10) is (size != "off")
    assert placed[SIZE] == placed["off"]


async def placed_alone(
    stand: FitStand, recorder: Recorder, ours: Ours, case: ClusterCase
) -> set[str]:
    """Place the pods of a cluster one after the other; return the names of those that fit."""
    recorder.accepts = bindable(case)
    placed = set()
    async with stand.cluster(replace(case, candidates=[])):
        await ours.knows(case.nodes)
        for candidate in case.candidates:
            [made] = await stand.create([candidate])
            uid = made["metadata"]["uid"]
            pod = (await settled(stand, recorder, case, {uid}))[uid]
            if "nodeName" in pod["spec"]:
                placed.add(name_of(pod))
            await stand.remove(pod)
    return placed


async def test_a_pod_that_its_kubelet_rejected_is_followed_by_one_with_all_nodes(
    plane: ControlPlane, tmp_path: Path
) -> None:
    case = ClusterCase(seed=8, nodes=[build.node(f"s8-n{number}") for number in range(12)])
    async with admin(plane) as client, between(plane, tmp_path) as (recorder, ours):
        stand = FitStand(client)
        async with stand.cluster(case):
            await ours.knows(case.nodes)
            before = await placed_sibling(stand, case, 0)
            await reject(client, before)
            deadline = SYSTEM.monotonic() + PATIENCE_S
            number = 1
            while not await ours.count("shortlists_total", result="sibling_rejected"):
                # The extender may not have heard of the rejection yet.
                assert SYSTEM.monotonic() < deadline, "siblings still get shortlists"
                last = await placed_sibling(stand, case, number)
                number += 1
    assert len(recorder.left[before["metadata"]["uid"]][0]) == SIZE
    assert len(recorder.left[last["metadata"]["uid"]][0]) == len(case.nodes)


async def placed_sibling(stand: FitStand, case: ClusterCase, number: int) -> Json:
    """Let a pod of the one controller here be placed."""
    made = build.pod(f"s8-p{number}", namespace="red", cpu="100m")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s8", "uid": "s8"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    [pod] = await stand.create([made])
    return await bound(stand, case, pod["metadata"]["uid"])


async def reject(client: KubeClient, pod: Json) -> None:
    """Do what a kubelet does that does not admit a pod."""
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}
    path = f"/api/v1/namespaces/red/pods/{name_of(pod)}/status"
    body = {"status": status}
    await client.request("PATCH", path, body=body, content_type=PatchKind.MERGE)


async def settled(
    stand: FitStand, recorder: Recorder, case: ClusterCase, uids: set[str]
) -> dict[str, Json]:
    """Wait until each pod has a node, or fits nowhere, or waits for a volume."""
    deadline = SYSTEM.monotonic() + PATIENCE_S
    while True:
        seen = (await stand.look(case))["pods"]
        pods = {pod["metadata"]["uid"]: pod for pod in seen if pod["metadata"]["uid"] in uids}
        open_ = [pod for uid, pod in pods.items() if not done(pod, recorder, uid)]
        if not open_:
            return pods
        names = [name_of(pod) for pod in open_]
        assert SYSTEM.monotonic() < deadline, f"they fit somewhere and have no node: {names}"
        await SYSTEM.sleep(PAUSE_S)


def done(pod: Json, recorder: Recorder, uid: str) -> bool:
    if "nodeName" in pod["spec"]:
        return True
    conditions = pod["status"].get("conditions", ())
    refused = any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)
    return refused and (uid not in recorder.sent or not recorder.accepts(pod, ["any"]))


def bindable(case: ClusterCase) -> Accepts:
    """Reject pods that would wait for a volume controller, which is not here."""
    bound = {
        (claim["metadata"]["namespace"], name_of(claim))
        for claim in case.pvcs
        if claim["spec"].get("volumeName")
    }

    def accepts(pod: Json, names: list[str]) -> list[str]:
        namespace = pod["metadata"]["namespace"]
        volumes = pod["spec"].get("volumes", ())
        claims = [v["persistentVolumeClaim"] for v in volumes if "persistentVolumeClaim" in v]
        waits = any((namespace, claim["claimName"]) not in bound for claim in claims)
        return [] if waits or any("ephemeral" in v for v in volumes) else names

    return accepts


def batches(case: ClusterCase) -> list[list[Json]]:
    """Return the pods in two parts: once pods with affinity run, the others get all nodes."""
    return [[pod for pod in case.candidates if attracts(pod) is last] for last in (False, True)]


def attracts(pod: Json) -> bool:
    return "podAffinity" in pod["spec"].get("affinity", {})


def crowded(case: ClusterCase) -> ClusterCase:
    """Return a cluster with full nodes, and nothing from the start that makes lists whole ones."""
    for pod in filter(attracts, case.pods):
        del pod["spec"]["affinity"]["podAffinity"]
    for number, node in enumerate(case.nodes):
        taints = node["spec"].get("taints", [])
        node["spec"]["taints"] = [t for t in taints if t["effect"] != "PreferNoSchedule"]
        node["status"]["allocatable"]["pods"] = node["status"]["capacity"]["pods"] = "110"
        if number < FULL_NODES:
            cpu = node["status"]["allocatable"]["cpu"]
            name = f"{case.prefix}-full{number}"
            case.pods.append(
                build.pod(name, namespace="red", node=name_of(node), cpu=cpu, memory="64Mi")
            )
    return case


async def test_a_rejected_shortlist_is_followed_by_all_nodes_and_kills_no_pod(
    plane: ControlPlane, tmp_path: Path, say: Say
) -> None:
    case = with_victims(seed=7)
    spare = {name_of(node) for node in case.nodes if "spare" in name_of(node)}
    async with admin(plane) as client, between(plane, tmp_path) as (recorder, ours):
        stand = FitStand(client)
        recorder.accepts = lambda _, names: spare.intersection(names)
        async with stand.cluster(replace(case, candidates=[])):
            await ours.knows(case.nodes)
            # Spare nodes are busier than those that are cool: the shortlist leaves them out.
            await ours.counts(spare, milli=5000)
            [urgent] = await stand.create(case.candidates)
            uid = urgent["metadata"]["uid"]
            # Its condition may never be seen: kube-scheduler drops a write of it that is still
            # waiting when the pod is bound (backend/api_dispatcher of the scheduler).
            await ours.answered_preempt()
            # Any event about pods wakes a pod that an extender has rejected.
            await stand.create([build.pod("s7-event", namespace="red", node=min(spare))])
            placed = await bound(stand, case, uid)
            left = {name_of(pod) for pod in (await stand.look(case))["pods"]}
            asked = await ours.preempts()
    first, *others = recorder.left[uid]
    say(f"{len(first)} of {len(recorder.sent[uid][0])} nodes first, then {[*map(len, others)]}")
    assert len(first) == SIZE
    assert not first & spare
    assert asked == 1
    assert all(each == sent for each, sent in zip(others, recorder.sent[uid][1:], strict=True))
    assert placed["spec"]["nodeName"] in spare
    assert "nominatedNodeName" not in placed["status"]
    assert {name_of(pod) for pod in case.pods} <= left


async def bound(stand: FitStand, case: ClusterCase, uid: str) -> Json:
    """Wait until a pod has a node."""
    deadline = SYSTEM.monotonic() + PATIENCE_S
    while True:
        seen: list[Json] = (await stand.look(case))["pods"]
        [pod] = [pod for pod in seen if pod["metadata"]["uid"] == uid]
        if "nodeName" in pod["spec"]:
            return pod
        assert SYSTEM.monotonic() < deadline, "it fits somewhere and has no node"
        await SYSTEM.sleep(PAUSE_S)


def with_victims(seed: int) -> ClusterCase:
    """Return cool nodes, busier ones with room, and full ones with pods of low priority."""
    case = ClusterCase(seed=seed)
    for kind, count in (("cool", 12), ("spare", 3), ("full", 3)):
        case.nodes.extend(build.node(f"s{seed}-{kind}{i}") for i in range(count))
    low = {"priorityClassName": "fit-low"}
    for node in map(name_of, case.nodes):
        cpus = {"spare": ["5"], "full": ["2"] * 4}.get(node.removeprefix(f"s{seed}-")[:-1], [])
        case.pods.extend(
            build.pod(f"{node}-p{i}", namespace="red", node=node, cpu=cpu, spec=low)
            for i, cpu in enumerate(cpus)
        )
    high = {"priorityClassName": "fit-high"}
    case.candidates.append(build.pod(f"s{seed}-urgent", namespace="red", cpu="1", spec=high))
    return case
