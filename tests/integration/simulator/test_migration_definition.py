# SPDX-License-Identifier: Apache-2.0
"""The shipped definition of Migrations on the simulator: the same yes and no as on the real server.

What the real kube-apiserver says to the same objects is in tests/e2e/test_migration_crd.py.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.kube.resources import MIGRATIONS
from simulator.api.catalog import DEFINITIONS
from tests.support.stands.conformance import Stand
from tests.support.stands.simulated import simulated_stand
from tests.support.worlds.migrations import (
    BAD_STATUSES,
    SPOILT,
    STATUS,
    Json,
    Spoil,
    controller,
    definition,
    manifest_of,
    spec_of,
    spoilt,
)


@asynccontextmanager
async def stand(folder: Path) -> AsyncIterator[Stand]:
    async with simulated_stand(folder) as api:
        (await api.create(DEFINITIONS, definition())).expect(201)
        yield api


async def create(api: Stand, manifest: Json) -> Any:
    return await api.create(MIGRATIONS, manifest, fieldValidation="Strict")


async def test_good_migrations_are_kept(tmp_path: Path) -> None:
    bare = spec_of(controller=None, workload=None, replacement_name="web-1-moved")
    indexed = spec_of(controller=controller("Job"), completion_index=0)
    async with stand(tmp_path) as api:
        for spec in (spec_of(), bare, indexed):
            sent = manifest_of(spec)
            made = (await create(api, sent)).expect(201)
            assert made.body["spec"] == sent["spec"]
            (await create(api, sent)).expect(409, "AlreadyExists")


@pytest.mark.parametrize(("spoil", "field", "words"), SPOILT)
async def test_what_makes_no_sense_is_refused(
    spoil: Spoil, field: str, words: str, tmp_path: Path
) -> None:
    async with stand(tmp_path) as api:
        answer = (await create(api, spoilt(spoil))).expect(422, "Invalid")
        assert words in answer.message
        assert field in answer.fields


async def test_unknown_fields_are_refused(tmp_path: Path) -> None:
    async with stand(tmp_path) as api:
        sent = manifest_of()
        sent["spec"]["colour"] = "red"
        answer = (await create(api, sent)).expect(400, "BadRequest")
        assert 'unknown field "spec.colour"' in answer.message


@pytest.mark.parametrize("change", [{"target": "n9"}, {"alternatives": []}, {"priority": 1}])
async def test_a_spec_never_changes(change: Json, tmp_path: Path) -> None:
    async with stand(tmp_path) as api:
        name = (await create(api, manifest_of())).expect(201).metadata["name"]
        answer = (await api.patch(MIGRATIONS, name, {"spec": change})).expect(422, "Invalid")
        assert answer.fields == {"spec"}
        assert "Invalid value: the spec of a Migration never changes" in answer.message
        body = {"metadata": {"labels": {"team": "ours"}}}
        (await api.patch(MIGRATIONS, name, body)).expect(200)


async def test_the_status_has_a_door_of_its_own(tmp_path: Path) -> None:
    async with stand(tmp_path) as api:
        made = (await create(api, {**manifest_of(), "status": copy.deepcopy(STATUS)})).expect(201)
        assert "status" not in made.body
        name = made.metadata["name"]
        told = await api.patch(MIGRATIONS, name, {"status": STATUS}, "status")
        assert told.expect(200).body["status"] == STATUS


@pytest.mark.parametrize(("status", "field", "words"), BAD_STATUSES)
async def test_a_status_that_makes_no_sense_is_refused(
    status: Json, field: str, words: str, tmp_path: Path
) -> None:
    async with stand(tmp_path) as api:
        name = (await create(api, manifest_of())).expect(201).metadata["name"]
        answer = await api.patch(MIGRATIONS, name, {"status": status}, "status")
        assert words in answer.expect(422, "Invalid").message
        assert field in answer.fields


async def test_migrations_have_columns_and_can_be_selected(tmp_path: Path) -> None:
    async with stand(tmp_path) as api:
        name = (await create(api, manifest_of())).expect(201).metadata["name"]
        (await create(api, manifest_of(spec_of(source="n8", target="n9")))).expect(201)
        found = (await api.list(MIGRATIONS, fieldSelector="spec.target=node-2")).expect(200)
        assert found.names == [name]
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        table = (await api.call("GET", api.path(MIGRATIONS), accept=accept)).expect(200).body
        shown = [c["name"] for c in table["columnDefinitions"] if not c.get("priority")]
        assert shown == [
            *("Name", "Namespace", "Pod", "Source", "Target", "Phase", "Outcome"),
            *("Strategy", "Age", "Finished"),
        ]
