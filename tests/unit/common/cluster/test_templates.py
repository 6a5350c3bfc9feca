# SPDX-License-Identifier: Apache-2.0
"""A workload's template is read once, and again when something in it changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from common.api.objects import Deployment, ReplicaSet
from common.cluster.interning import Interner
from common.cluster.shapes import PodShape
from common.cluster.workloads import deployment_record, replica_set_record

KEY = "pod-template-hash"
TERM = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"app": "web"}},
    "matchLabelKeys": [KEY],
}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}


def workload(status: dict[str, Any] | None = None, **spec: Any) -> bytes:
    """Return a Deployment or ReplicaSet as the API server sends it."""
    pod = {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}], **spec}
    labels = {"app": "web", **({KEY: "5d4f"} if spec.get("affinity") else {})}
    template = {"metadata": {"labels": labels}, "spec": pod}
    meta = {"name": "web", "namespace": "shop", "uid": "u"}
    return msgspec.json.encode(
        {"metadata": meta, "spec": {"template": template}, "status": status or {}}
    )


def shape(shared: Interner, sent: bytes) -> PodShape | None:
    return deployment_record(msgspec.json.decode(sent, type=Deployment), shared).template


def test_another_status_changes_nothing_about_the_template() -> None:
    shared = Interner()
    before = shape(shared, workload())
    assert shape(shared, workload({"replicas": 3, "readyReplicas": 3})) is before


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "app", "resources": {"requests": {"cpu": "200m"}}}]},
        {"nodeSelector": {"disk": "fast"}},
        {"affinity": APART},
    ],
)
def test_another_template_is_another_shape(spec: dict[str, Any]) -> None:
    shared = Interner()
    assert shape(shared, workload()) != shape(shared, workload(**spec))


def test_a_deployment_shares_the_shape_with_its_replica_set() -> None:
    shared = Interner()
    sent = workload()
    owner = replica_set_record(msgspec.json.decode(sent, type=ReplicaSet), shared)
    assert owner.template is shape(shared, sent)


def test_label_keys_of_affinity_are_read_from_the_labels_of_each_template() -> None:
    shared = Interner()
    sent = workload(affinity=APART)
    first = shape(shared, sent)
    assert shape(shared, sent.replace(b"5d4f", b"77aa")) != first
    assert shape(shared, sent) is first
