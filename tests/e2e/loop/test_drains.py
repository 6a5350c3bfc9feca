# SPDX-License-Identifier: Apache-2.0
"""Three of twenty nodes are emptied completely on a real cluster, with and without metrics.

On them run single replicas, StatefulSets with volumes, bare pods, and workloads with budgets.
What is available is counted after every single event of the pods' watch. `kubectl wait` tells
when the nodes are empty.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, episode, nothing_open
from bench.stands.extender_process import DEPLOY
from bench.stands.real_scenario import Pods, app_of, ending, is_ready
from bench.stands.rebalancer_process import QUICK, USER
from common.api.contract import COPY_OF, DRAINED_CONDITION, MIGRATED_FROM_LABEL
from simulator import build
from simulator.scenarios import Scenario
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

NODES, SINGLES, SETS, REPLICAS, BARE, WEBS = 20, 30, 3, 3, 3, 5
LOAD = {"usageInterval": "2s", "observations": 2, "metricExpiry": "20s"}
SETTINGS = {**QUICK, **LOAD, "enabledStrategies": ["NodeMaintenance"], "barePods": "replace"}
BARE_PODS = DEPLOY / "components" / "bare-pods" / "role.yaml"


def scenario() -> Scenario:
    """Return twenty nodes, and workloads with a PDB on six of them each."""
    asked, usage = {"cpu": "300m", "memory": "512Mi"}, {"cpu": "300m", "memory": "300Mi"}
    workloads = [
        {
            "name": f"web-{number}",
            "replicas": 6,
            "requests": asked,
            "usage": usage,
            "pdb": {"maxUnavailable": 1},
            "nodes": [f"node-{1 + (number + 3 * turn) % NODES}" for turn in range(6)],
        }
        for number in range(WEBS)
    ]
    pool = {"name": "node", "count": NODES, "zones": ["a", "b", "c"]}
    return Scenario.model_validate({"pools": [pool], "workloads": workloads})


async def test_three_nodes_are_emptied_completely_and_kubectl_waits_for_it(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    async with episode(cluster, tmp_path, scenario(), seed=1, settings=SETTINGS, load=LOAD) as loop:
        await cluster.bind(USER, BARE_PODS)
        first, second = nodes_of(loop, 1, 2, 3), nodes_of(loop, 4, 5, 6)
        await _fill(cluster, loop, first)
        loop.pods.checks.append(_nothing_is_missing(loop.pods))
        there = await _emptied(cluster, loop, first, say)
        assert there > SINGLES + SETS * REPLICAS + BARE
        moved = await cluster.kubectl("get", "pods", "-l", MIGRATED_FROM_LABEL, "--no-headers")
        assert len(moved.splitlines()) == there
        await _show_one_move(cluster, loop, say)

        await cluster.stop("metrics-server")
        try:
            await cluster.wait(lambda: _nothing_is_known(loop), 90.0, "no load is known")
            assert await _emptied(cluster, loop, second, say) > SINGLES / 10
        finally:
            await cluster.start("metrics-server")


def nodes_of(loop: Episode, *numbers: int) -> list[str]:
    return [loop.nodes[f"node-{number}"] for number in numbers]


async def _emptied(cluster: Cluster, loop: Episode, nodes: Sequence[str], say: Say) -> int:
    """Label nodes, wait with kubectl, and end the maintenance; return how many pods left."""
    there = sum(len(loop.pods.on(node)) for node in nodes)
    for node in nodes:
        await cluster.maintain(node, on=True)
    objects = [f"node/{node}" for node in nodes]
    said = await cluster.kubectl(
        "wait", f"--for=condition={DRAINED_CONDITION}", *objects, "--timeout=300s"
    )
    assert said.count("condition met") == len(nodes)
    assert [pod for node in nodes for pod in loop.pods.on(node)] == []
    for node in nodes:
        await cluster.maintain(node, on=False)
    await cluster.wait(lambda: loop.pods.settled, 90.0, "all replacements run")
    await cluster.wait(lambda: nothing_open(cluster), 90.0, "no move is under way")
    for node in nodes:
        await cluster.wait(partial(_is_gone, cluster, node), what="no condition is left")
    moves = Counter(each["status"].get("outcome") for each in await loop.migrations())
    say(f"{there} pods left {len(nodes)} nodes, {dict(moves)} in all")
    return there


async def _fill(cluster: Cluster, loop: Episode, nodes: Sequence[str]) -> None:
    """Let what is hard to move begin on some nodes: the others take nothing meanwhile."""
    others = [node for node in loop.nodes.values() if node not in nodes]
    await _cordon(cluster, others, on=True)
    count = len(loop.pods.now) + SINGLES + SETS * REPLICAS + BARE
    await cluster.create(_objects(cluster, nodes))
    await cluster.wait(
        lambda: len(loop.pods.now) == count and loop.pods.settled, 120.0, "all of it runs"
    )
    await _cordon(cluster, others, on=False)


def _objects(cluster: Cluster, nodes: Sequence[str]) -> Iterator[Json]:
    here: Json = {"namespace": cluster.namespace, "usage_cpu": "50m", "cpu": "50m"}
    yield from (build.deployment(f"one-{n}", 1, **here) for n in range(SINGLES))
    for number in range(SETS):
        yield from _stateful(f"db-{number}", here)
    yield from (build.pod(f"bare-{n}", node=nodes[n], **here) for n in range(BARE))


def _stateful(name: str, here: Json) -> Iterator[Json]:
    """Yield a StatefulSet with a volume for each pod, which every node can reach."""
    claim: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    claim["resources"] = {"requests": {"storage": "1Gi"}}
    for ordinal in range(REPLICAS):
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "nfs": {"server": "192.0.2.1", "path": f"/{ordinal}"},
        }
        meta = {"name": f"{here['namespace']}-{name}-{ordinal}"}
        yield {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}
    made = build.stateful_set(name, REPLICAS, parallel=True, **here)
    made["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    yield made


def _nothing_is_missing(pods: Pods) -> Callable[[], None]:
    """Return a check that no replica is missing but one of a StatefulSet or of a budget."""
    least = {f"db-{n}": REPLICAS - 1 for n in range(SETS)}
    least |= {f"web-{n}": 5 for n in range(WEBS)}
    least |= {f"bare-{n}": 1 for n in range(BARE)}
    least |= {f"one-{n}": 1 for n in range(SINGLES)}
    apps = {uid: app_of(pod) for uid, pod in pods.now.items()}

    def app(pod: Json) -> str:
        uid, notes = pod["metadata"]["uid"], pod["metadata"].get("annotations", {})
        return apps.setdefault(uid, apps.get(notes.get(COPY_OF, ""), app_of(pod)))

    def check() -> None:
        found = Counter(app(pod) for pod in pods.now.values() if is_ready(pod) and not ending(pod))
        short = {name: found[name] for name, count in least.items() if found[name] < count}
        assert not short, f"missing: {short}"

    return check


async def _show_one_move(cluster: Cluster, loop: Episode, say: Say) -> None:
    """Print what people see of one move; docs/migrations.md shows it."""
    done = [m for m in await loop.migrations() if m["status"].get("outcome") == "AsPlanned"]
    [move] = [m for m in done if m["spec"]["pod"]["name"].startswith("one-7-")]
    labels = ("migrated-from", "migration-reason", "migration-status")
    columns = [f"-L=scheduler.alpha.kubernetes.io/{label}" for label in labels]
    say(await cluster.kubectl("get", "pods", "-l", f"{MIGRATED_FROM_LABEL},app=one-7", *columns))
    for name in (move["spec"]["pod"]["name"], move["status"]["replacement"]["name"]):
        say(await cluster.wait(partial(_events, cluster, name), what=f"Events tell of {name}"))


async def _events(cluster: Cluster, pod: str) -> str:
    """Return what the Events of a pod say, once they tell of its move."""
    said = await cluster.kubectl("events", "--for", f"pod/{pod}")
    return said if "Migration" in said else ""


async def _nothing_is_known(loop: Episode) -> bool:
    return (await loop.rebalancer.metrics()).total("_nodes_unknown") >= len(loop.nodes)


async def _cordon(cluster: Cluster, nodes: Iterable[str], *, on: bool) -> None:
    for node in nodes:
        await cluster.patch_node(node, {"spec": {"unschedulable": on or None}})


async def _is_gone(cluster: Cluster, name: str) -> bool:
    found = await asyncio.to_thread(cluster.control_plane.api.get, f"/api/v1/nodes/{name}")
    return all(each["type"] != DRAINED_CONDITION for each in found["status"]["conditions"])
