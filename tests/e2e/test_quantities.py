# SPDX-License-Identifier: Apache-2.0
"""The table of quantities, put to the real API server.

A device's capacity in a ResourceSlice is a field that takes any quantity, negative
ones too, and hands it back in canonical form. Dry runs store nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from bench.stands.cluster import Cluster
from common.cluster.quantities import QuantityError, milli
from common.kube.client import KubeClient
from common.kube.errors import BadRequest
from common.kube.resources import Resource
from tests.support.repository import UNIT_TESTS

TABLE: list[dict[str, Any]] = yaml.safe_load(
    (UNIT_TESTS / "common" / "cluster" / "quantities.yaml").read_text(encoding="utf-8")
)
SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)
REFUSED = "refused"

pytestmark = pytest.mark.real


async def test_the_api_server_reads_and_refuses_what_we_do(cluster: Cluster) -> None:
    async with cluster.client() as client:
        answers = {repr(case["text"]): await _answer(client, case["text"]) for case in TABLE}
    assert answers == {repr(case["text"]): case.get("canonical", REFUSED) for case in TABLE}
    assert {text for text, answer in answers.items() if answer == REFUSED} == {
        repr(case["text"]) for case in TABLE if _refused_here(case["text"])
    }


def _refused_here(text: Any) -> bool:
    try:
        milli(text)
    except QuantityError:
        return True
    return False


async def _answer(client: KubeClient, text: Any) -> str:
    try:
        raw = await client.create(SLICES, _slice(text), dry_run=True)
    except BadRequest:
        return REFUSED
    created = msgspec.json.decode(raw)
    return str(created["spec"]["devices"][0]["capacity"]["amount"]["value"])


def _slice(text: Any) -> dict[str, Any]:
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {"name": "quantities"},
        "spec": {
            "driver": "quantities.evenkeel.io",
            "allNodes": True,
            "pool": {"name": "quantities", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "device", "capacity": {"amount": {"value": text}}}],
        },
    }
