# SPDX-License-Identifier: Apache-2.0
"""The definition of Migrations and the extender's role on a real kube-apiserver."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bench.stands.cluster import Cluster
from common.api.contract import INSTALL_CRD, SEEN_MIGRATIONS
from common.api.migrations import Migration, MigrationSpec, MigrationStatus
from common.cache.reader import CACHED_KINDS, MIGRATION_KIND, ClusterReader
from common.clock import SYSTEM
from common.config import Duration, Reading
from common.kube.client import KubeClient
from common.kube.errors import AlreadyExists, Forbidden, Invalid, KubeError, NotFound
from common.kube.identity import own_identity
from common.kube.resources import LEASES, MIGRATIONS, NODE_METRICS, NODES, POD_METRICS, PODS
from common.metrics import Metrics
from common.runtime import Runtime
from extender.callers import Callers
from extender.lease import ExtenderLease, LeaseContent
from simulator import build
from tests.support.repository import DEPLOY
from tests.support.worlds.migrations import (
    BAD_STATUSES,
    DEFINITION_FILE,
    SPOILT,
    STATUS,
    Json,
    controller,
    manifest_of,
    spec_of,
    spoilt,
)

pytestmark = pytest.mark.real

ROLE = DEPLOY / "base" / "extender.yaml"
NAMESPACE = "evenkeel"
OLDER_DEFINITION = Path(__file__).parent / "older_migrations.yaml"
"""The CRD as it was before surges."""


LEFT = """{
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {
        "name": "NAME",
        "labels": {
            "app.kubernetes.io/name": "evenkeel",
            "app.kubernetes.io/component": "extender"
        }
    },
    "spec": {"holderIdentity": "x", "renewTime": "2026-01-01T08:00:00.000000Z"}
}"""


async def bind(cluster: Cluster, admin: KubeClient) -> None:
    """Give a user the extender's rights, in a namespace that no earlier test is leaving."""

    async def free() -> bool:
        try:
            await admin.get(f"/api/v1/namespaces/{NAMESPACE}")
        except NotFound:
            return True
        return False

    await cluster.wait(free, what="the namespace of the last test is gone")
    await cluster.bind("extender", ROLE)


@asynccontextmanager
async def served(cluster: Cluster) -> AsyncIterator[KubeClient]:
    """Install the definition as an administrator would, and remove it in the end."""
    apply = ("apply", "--server-side", "--validate=strict", "-f", str(DEFINITION_FILE))
    assert "serverside-applied" in await cluster.kubectl(*apply)
    wait = ("wait", "--for=condition=Established", "--timeout=30s", "crd/migrations.evenkeel.io")
    await cluster.kubectl(*wait)
    try:
        async with cluster.client() as client:
            await cluster.wait(lambda: _answers(client), what="migrations are served")
            yield client
    finally:
        await cluster.kubectl("delete", "--wait", "crd/migrations.evenkeel.io")


async def _answers(client: KubeClient) -> bool:
    try:
        await client.get(MIGRATIONS.path())
    except KubeError:
        return False
    return True


async def create(client: KubeClient, manifest: Json) -> Json:
    """Create strictly: an unknown field is an error."""
    params = {"fieldValidation": "Strict"}
    made = await client.request("POST", MIGRATIONS.path(), params=params, body=manifest)
    found: Json = msgspec.json.decode(made)
    return found


async def test_good_migrations_are_kept_as_they_are(cluster: Cluster) -> None:
    bare = spec_of(controller=None, workload=None, replacement_name="web-1-moved")
    indexed = spec_of(controller=controller("Job"), completion_index=0)
    least = MigrationSpec(
        **{
            key: getattr(spec_of(), key)
            for key in ("pod", "controller", "source", "target", "strategy", "reason", "deadline")
        }
    )
    async with served(cluster) as client:
        for spec in (spec_of(), bare, indexed, least):
            made = await create(client, manifest_of(spec))
            again = msgspec.json.decode(msgspec.json.encode(made), type=Migration)
            assert again.spec == spec
            assert made["metadata"]["name"] == spec.pod.uid
            with pytest.raises(AlreadyExists):
                await create(client, manifest_of(spec))


async def test_what_makes_no_sense_is_refused_with_words(cluster: Cluster) -> None:
    async with served(cluster) as client:
        for case in SPOILT:
            spoil, field, words = case.values
            with pytest.raises(Invalid) as refusal:
                await create(client, spoilt(spoil))
            assert str(words) in str(refusal.value), case.id
            assert field in [cause.field for cause in refusal.value.causes], case.id
        colourful = manifest_of()
        colourful["spec"]["colour"] = "red"
        with pytest.raises(KubeError, match=r'unknown field \\?"spec.colour'):
            await create(client, colourful)
        assert msgspec.json.decode(await client.get(MIGRATIONS.path()))["items"] == []


async def test_a_spec_never_changes(cluster: Cluster) -> None:
    async with served(cluster) as client:
        made = await create(client, manifest_of())
        name = made["metadata"]["name"]
        changes: tuple[Json, ...] = ({"target": "n9"}, {"alternatives": []}, {"priority": 1})
        for change in changes:
            with pytest.raises(Invalid, match="the spec of a Migration never changes"):
                await client.patch(MIGRATIONS, {"spec": change}, name=name)
        # Names and marks of others are no business of ours.
        labels = {"metadata": {"labels": {"team": "ours"}}}
        assert await client.patch(MIGRATIONS, labels, name=name)


async def test_the_status_is_written_through_its_own_door_only(cluster: Cluster) -> None:
    async with served(cluster) as client:
        manifest = {**manifest_of(), "status": STATUS}
        made = await create(client, manifest)
        assert "status" not in made
        name = made["metadata"]["name"]
        ignored = msgspec.json.decode(await client.patch(MIGRATIONS, {"status": STATUS}, name=name))
        assert "status" not in ignored
        moved = copy.deepcopy(STATUS)
        body = {"status": moved, "spec": {"target": "node-9"}}
        # A change of the spec through the status is dropped without a word.
        told = msgspec.json.decode(
            await client.patch(MIGRATIONS, body, name=name, subresource="status")
        )
        assert told["spec"] == made["spec"]
        assert told["status"] == STATUS
        wire = msgspec.json.decode(msgspec.json.encode(told), type=Migration)
        assert wire.status == msgspec.convert(STATUS, MigrationStatus)
        assert msgspec.to_builtins(wire.status)["outcome"] == "AsPlanned"
        for case in BAD_STATUSES:
            status, field, words = case.values
            with pytest.raises(Invalid) as refusal:
                await client.patch(MIGRATIONS, {"status": status}, name=name, subresource="status")
            assert str(words) in str(refusal.value), case.id
            assert field in [cause.field for cause in refusal.value.causes], case.id


async def test_an_older_crd_and_the_newer_one_again_keep_every_migration(cluster: Cluster) -> None:
    """A downgrade hides new fields and loses those of Migrations that are written meanwhile.

    What a newer program has written into a status stays, and does not keep an older program from
    writing what it knows: the API server does not validate what a write leaves as it is.
    """
    kept, written, begun = (spec_of(surge=True) for _ in range(3))
    async with served(cluster) as client:

        async def read(spec: MigrationSpec) -> Migration:
            body = await client.get(MIGRATIONS.path(name=spec.pod.uid))
            return msgspec.json.decode(body, type=Migration)

        async def write(spec: MigrationSpec, status: Json) -> Json:
            body = {"status": status}
            done = await client.patch(MIGRATIONS, body, name=spec.pod.uid, subresource="status")
            found: Json = msgspec.json.decode(done)["status"]
            return found

        async def surges(spec: MigrationSpec) -> bool:
            return (await read(spec)).spec.surge

        async def older_holds() -> bool:
            return not await surges(kept)

        for spec in (kept, written, begun):
            # No finalizer: only a program that knows surges takes theirs off.
            await create(client, {**manifest_of(spec), "metadata": {"name": spec.pod.uid}})
        await write(begun, STATUS)
        await _applied(cluster, OLDER_DEFINITION)
        await cluster.wait(older_holds, what="the older CRD is served")
        known = [each for each in STATUS["conditions"] if each["type"] in _older_conditions()]
        assert 0 < len(known) < len(STATUS["conditions"])
        await write(written, {**STATUS, "conditions": known})
        last = {**STATUS["conditions"][0], "message": "again"}
        ended = await write(begun, {"conditions": [last, *STATUS["conditions"][1:]]})
        assert ended["conditions"] == [last, *STATUS["conditions"][1:]]
        for spec in (kept, written, begun):
            assert (await read(spec)).spec == msgspec.structs.replace(spec, surge=False)

        await _applied(cluster, DEFINITION_FILE)
        await cluster.wait(lambda: surges(kept), what="the newer CRD is served")
        assert (await read(kept)).spec == kept
        for spec in (written, begun):
            found = await read(spec)
            assert found.spec == msgspec.structs.replace(spec, surge=False)
            assert found.status is not None
            assert found.status.phase == STATUS["phase"]
            assert await write(spec, STATUS) == STATUS


def _older_conditions() -> list[str]:
    older = yaml.safe_load(OLDER_DEFINITION.read_text())
    [version] = older["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    kinds: list[str] = status["properties"]["conditions"]["items"]["properties"]["type"]["enum"]
    return kinds


async def _applied(cluster: Cluster, file: Path) -> None:
    flags = ("--server-side", "--force-conflicts", "--validate=strict")
    assert "serverside-applied" in await cluster.kubectl("apply", *flags, "-f", str(file))


async def test_people_see_what_moves_where(cluster: Cluster) -> None:
    async with served(cluster) as client:
        made = await create(client, manifest_of())
        name = made["metadata"]["name"]
        await client.patch(MIGRATIONS, {"status": STATUS}, name=name, subresource="status")
        await create(client, manifest_of(spec_of(source="node-8", target="node-9")))
        head, *rows = (await cluster.kubectl("get", "mig")).splitlines()
        assert head.split() == [
            *("NAME", "NAMESPACE", "POD", "SOURCE", "TARGET", "PHASE", "OUTCOME"),
            *("STRATEGY", "AGE", "FINISHED"),
        ]
        row = next(row.split() for row in rows if row.startswith(name))
        assert row[:8] == [
            *(name, "shop", "web-1", "node-1", "node-2", "InProgress", "AsPlanned"),
            "LoadBalancing",
        ]
        wide = await cluster.kubectl("get", "evenkeel", "-o", "wide")
        assert "NodeOverloaded" in wide
        assert "on its way" in wide
        for selector, count in (
            ("spec.source=node-1", 1),
            ("spec.target=node-9", 1),
            ("status.phase=InProgress", 1),
            ("spec.source=nowhere", 0),
        ):
            found = await cluster.kubectl(
                "get", "migrations", "--field-selector", selector, "-o", "json"
            )
            assert len(json.loads(found)["items"]) == count, selector
        words = await cluster.kubectl("explain", "migration.spec.alternatives")
        assert "Where else it may go, best first." in words


async def test_the_extenders_role_is_enough(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    async with served(cluster) as admin:
        await bind(cluster, admin)
        async with cluster.client(user="extender") as client:
            readings = [r for r in CACHED_KINDS if r.resource in (NODES, PODS)]
            reader = ClusterReader(
                client,
                reading=Reading(),
                clock=SYSTEM,
                metrics=Metrics("test"),
                kinds=[*readings, MIGRATION_KIND],
            )
            seen = reader.reflector_of(MIGRATIONS)
            held = _extender_lease(client, lambda: seen.resource_version)
            tasks = [asyncio.create_task(job()) for job in (reader.run, held.run)]
            await cluster.wait(lambda: _lease(admin, held.name), what="the Lease")
            made = await create(admin, manifest_of())

            async def acknowledged() -> bool:
                lease = await _lease(admin, held.name)
                told = int(lease["metadata"]["annotations"][SEEN_MIGRATIONS])
                return told >= int(made["metadata"]["resourceVersion"])

            await cluster.wait(acknowledged, what="the acknowledgement")
            assert list(reader.state.migrations.keys()) == [made["metadata"]["name"]]
            for kind in (NODE_METRICS, POD_METRICS):
                await client.get(kind.path())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert await _lease(admin, held.name) == {}


async def test_old_leases_are_removed_with_the_extenders_rights(cluster: Cluster) -> None:
    async with served(cluster) as admin:
        await bind(cluster, admin)
        async with cluster.client(user="extender") as client:
            first = _extender_lease(client, lambda: 1)
            left = msgspec.json.decode(LEFT.replace("NAME", first.name))
            await admin.create(LEASES, left, namespace=NAMESPACE)
            second = _extender_lease(client, lambda: 1)
            task = asyncio.create_task(second.run())
            await cluster.wait(lambda: _lease(admin, second.name), what="the second Lease")
            assert await _lease(admin, first.name) == {}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_the_extenders_role_is_nothing_more(cluster: Cluster) -> None:
    (node,) = await cluster.add_nodes(1)
    here = cluster.namespace
    async with served(cluster) as admin:
        made = await create(admin, manifest_of())
        name = made["metadata"]["name"]
        await bind(cluster, admin)
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": "x"},
            "spec": {},
        }
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p", "namespace": here},
        }
        async with cluster.client(user="extender") as client:
            for act in (
                client.patch(NODES, {}, name=node),
                client.patch(NODES, {}, name=node, subresource="status"),
                client.delete(NODES, name=node),
                client.create(PODS, build.pod("p"), namespace=here),
                client.patch(PODS, {}, name="p", namespace=here),
                client.delete(PODS, name="p", namespace=here),
                client.create(PODS, eviction, namespace=here, name="p", subresource="eviction"),
                client.create(PODS, {}, namespace=here, name="p", subresource="binding"),
                client.get(PODS.path(namespace=here, name="p", subresource="log")),
                create(client, manifest_of()),
                client.patch(MIGRATIONS, {}, name=name),
                client.patch(MIGRATIONS, {}, name=name, subresource="status"),
                client.delete(MIGRATIONS, name=name),
                client.create(LEASES, lease, namespace=here),
                client.get(LEASES.path()),
                client.get("/api/v1/secrets"),
                client.get(f"/api/v1/namespaces/{NAMESPACE}/secrets"),
                client.get("/api/v1/configmaps"),
                client.get("/apis/apps/v1/deployments"),
            ):
                with pytest.raises(Forbidden):
                    await act


def _extender_lease(client: KubeClient, seen: Any) -> ExtenderLease:
    return ExtenderLease(
        client,
        LeaseContent(
            identity=own_identity({"POD_NAME": "host"}),
            seen_version=seen,
            callers=Callers(SYSTEM),
            load_settings_hash="abc",
        ),
        namespace=NAMESPACE,
        runtime=Runtime(SYSTEM, Metrics("test"), random.Random(1)),
    )


async def _lease(client: KubeClient, name: str) -> Json:
    found = msgspec.json.decode(await client.get(LEASES.path(namespace=NAMESPACE)))
    return next((each for each in found["items"] if each["metadata"]["name"] == name), {})


async def test_a_reader_takes_the_crd_up_when_it_comes_and_when_it_comes_again(
    cluster: Cluster,
) -> None:
    *command, folder = INSTALL_CRD.split()
    assert command == ["kubectl", "apply", "--server-side", "-k"]
    async with cluster.client() as client:
        reader = ClusterReader(
            client,
            reading=Reading(backoff_min=Duration(0.05), backoff_max=Duration(0.5)),
            clock=SYSTEM,
            metrics=Metrics("test"),
            kinds=[r for r in CACHED_KINDS if r.resource == NODES] + [MIGRATION_KIND],
        )
        migrations, state = reader.reflector_of(MIGRATIONS), reader.state.migrations
        reading = asyncio.create_task(reader.run())
        try:
            for _ in range(2):
                await cluster.wait(lambda: migrations.absent, what="the CRD is missed")
                assert reader.why_not_synced() is None
                assert INSTALL_CRD in (reader.why_not_steered() or "")
                assert list(state.keys()) == []
                # What is printed is what is run, from a checkout of the project.
                await cluster.kubectl(*command[1:], str(DEFINITION_FILE.parents[2] / folder))
                await cluster.wait(lambda: migrations.synced, what="Migrations are read")
                assert reader.why_not_steered() is None
                await create(client, manifest_of())
                await cluster.wait(lambda: list(state.keys()), what="a Migration is known")
                await cluster.kubectl("delete", "--wait", "crd/migrations.evenkeel.io")
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await cluster.kubectl("delete", "--ignore-not-found", "crd/migrations.evenkeel.io")
