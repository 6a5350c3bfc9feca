# SPDX-License-Identifier: Apache-2.0
"""Leases and Events on a real kube-apiserver: what it takes, keeps and refuses."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from bench.stands.cluster import Cluster
from common.clock import SYSTEM
from common.config import Duration, LeaderElection
from common.kube.client import KubeClient
from common.kube.errors import Conflict
from common.kube.events import EventLimits, ObjectRef, Recorder
from common.kube.leader import Elector
from common.kube.resources import EVENTS, LEASES
from common.kube.timestamps import parse_time
from common.metrics import Metrics
from tests.support.stands.lease_api import leading

pytestmark = pytest.mark.real

# A released Lease needs no waiting, so the durations may stay as patient as they are.
BRISK = LeaderElection(name="helm", retry_period=Duration(0.5))
PATIENCE_S = 60.0


def elector(client: KubeClient, namespace: str, identity: str) -> Elector:
    return Elector(
        client,
        BRISK,
        namespace=namespace,
        identity=identity,
        clock=SYSTEM,
        metrics=Metrics("test"),
        rng=random.Random(identity),
    )


def recorder(client: KubeClient, metrics: Metrics) -> Recorder:
    return Recorder(
        client,
        program="rebalancer",
        identity="host_1",
        limits=EventLimits(update_every_s=0.5),
        clock=SYSTEM,
        metrics=metrics,
        rng=random.Random(1),
    )


async def read(client: KubeClient, path: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(await client.get(path))
    return found


async def ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_the_lead_passes_on_when_a_leader_ends(cluster: Cluster) -> None:
    path = LEASES.path(namespace=cluster.namespace, name="helm")
    async with cluster.client() as ours, cluster.client() as theirs:
        one, two = (
            elector(client, cluster.namespace, name)
            for client, name in ((ours, "a"), (theirs, "b"))
        )
        first = asyncio.create_task(one.run())
        await leading(one)
        second = asyncio.create_task(two.run())

        async def renewed() -> bool:
            spec = (await read(ours, path))["spec"]
            return parse_time(spec["renewTime"]) > parse_time(spec["acquireTime"])

        await cluster.wait(renewed, what="a renewal")
        assert (await read(ours, path))["spec"]["leaseTransitions"] == 0
        await ended(first)
        await leading(two)
        spec = (await read(ours, path))["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)
        assert spec["leaseDurationSeconds"] == 15
        await ours.delete(LEASES, name="helm", namespace=cluster.namespace)

        async def back() -> bool:
            found = await read(ours, LEASES.path(namespace=cluster.namespace))
            return [lease["spec"]["holderIdentity"] for lease in found["items"]] == ["b"]

        await cluster.wait(back, what="the deleted lease back")
        assert two.is_leader
        await ended(second)
        assert (await read(ours, path))["spec"]["holderIdentity"] == ""
        assert not one.is_leader
        assert not two.is_leader


async def test_a_lease_written_on_an_old_version_is_refused(cluster: Cluster) -> None:
    path = LEASES.path(namespace=cluster.namespace, name="helm")
    async with cluster.client() as client:
        one = elector(client, cluster.namespace, "a")
        task = asyncio.create_task(one.run())
        await leading(one)
        await ended(task)
        old = await read(client, path)
        patch = {"metadata": {"labels": {"team": "ours"}}}
        await client.patch(LEASES, patch, name="helm", namespace=cluster.namespace)
        with pytest.raises(Conflict):
            await client.replace(LEASES, old, name="helm", namespace=cluster.namespace)

        task = asyncio.create_task(one.run())
        await leading(one)
        assert (await read(client, path))["metadata"]["labels"] == {"team": "ours"}
        await ended(task)


async def test_events_of_every_shape_are_accepted_and_folded(cluster: Cluster) -> None:
    pod = ObjectRef(kind="Pod", namespace=cluster.namespace, name="web-1", uid="u-1")
    longest = ObjectRef(kind="Pod", namespace=cluster.namespace, name="x" * 253, uid="u-2")
    node = ObjectRef(kind="Node", name=f"n-{cluster.namespace}", uid="u-3")
    odd = ObjectRef(
        kind="ClusterRole",
        name=f"system:{cluster.namespace}",
        api_version="rbac.authorization.k8s.io/v1",
    )
    metrics = Metrics("test")
    async with cluster.client() as client:
        notes = recorder(client, metrics)
        task = asyncio.create_task(notes.run())
        for subject in (pod, longest, node, odd):
            notes.record(
                regarding=subject,
                type_="Warning",
                reason="R" * 500,
                note="ü" * 5000,
                action="A" * 500,
                related=pod,
            )

        async def about(name: str, namespace: str) -> list[dict[str, Any]]:
            found = await read(client, EVENTS.path(namespace=namespace))
            return [item for item in found["items"] if item["regarding"]["name"] == name]

        async def all_told() -> bool:
            told = [
                await about(subject.name, subject.namespace or "default")
                for subject in (pod, longest, node, odd)
            ]
            return all(len(events) == 1 for events in told)

        await cluster.wait(all_told, what="four events")
        for _ in range(4):
            notes.record(
                regarding=pod, type_="Normal", reason="Evicted", note="moved", action="Evict"
            )
            await asyncio.sleep(0.2)

        async def folded() -> bool:
            events = [e for e in await about("web-1", cluster.namespace) if e["type"] == "Normal"]
            return [e.get("series", {}).get("count") for e in events] == [4]

        await cluster.wait(folded, what="a series of four")
        [event] = [e for e in await about("web-1", cluster.namespace) if e["type"] == "Normal"]
        assert event["reportingController"] == "evenkeel.io/rebalancer"
        assert parse_time(event["series"]["lastObservedTime"]) > parse_time(event["eventTime"])

        place = {"name": event["metadata"]["name"], "namespace": cluster.namespace}
        await client.delete(EVENTS, **place)
        notes.record(regarding=pod, type_="Normal", reason="Evicted", note="moved", action="Evict")

        async def created_again() -> bool:
            events = [e for e in await about("web-1", cluster.namespace) if e["type"] == "Normal"]
            return [e.get("series", {}).get("count") for e in events] == [5]

        await cluster.wait(created_again, what="the deleted event back")
        await ended(task)
        for name in (node.name, odd.name):
            [left] = await about(name, "default")
            await client.delete(EVENTS, name=left["metadata"]["name"], namespace="default")
    dropped = b"evenkeel_events_dropped_total"
    lines = [line for line in metrics.render().splitlines() if line.startswith(dropped)]
    assert {line.rsplit(b" ", 1)[1] for line in lines} == {b"0.0"}
