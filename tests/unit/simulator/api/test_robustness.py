# SPDX-License-Identifier: Apache-2.0
"""Whatever a client sends, it is told in a Status; nothing makes the server stumble."""

from __future__ import annotations

import copy
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kube import resources as kube
from common.kube.api import PatchKind
from common.kube.resources import Resource
from simulator import build
from simulator.api import DEFINITIONS, SERVICES, Store
from simulator.api.errors import Refusal
from simulator.api.kinds.events import CORE_EVENTS
from simulator.api.storage import Json
from tests.support.clock import FakeClock

_NONSENSE = st.sampled_from([None, True, -1, 2**70, 1.5, "", "x", [], [None], [1], {}, {"x": 1}])


def _templated() -> Json:
    selector = {
        "matchLabels": {"app": "x"},
        "matchExpressions": [{"key": "a", "operator": "Exists"}],
    }
    term = {"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["app"]}
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    soft = "preferredDuringSchedulingIgnoredDuringExecution"
    weighted = {"weight": 1, "podAffinityTerm": term}
    return {
        "affinity": {"podAffinity": {hard: [term]}, "podAntiAffinity": {soft: [weighted]}},
        "topologySpreadConstraints": [{"maxSkew": 1, **term}],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"a": "b"},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "schedulingGates": [{"name": "g"}],
        "resources": {"limits": {"cpu": "2"}},
        "initContainers": [build.container("init", cpu="1", sidecar=True)],
        "activeDeadlineSeconds": 5,
    }


def _owned(obj: Json) -> Json:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "1", "controller": True}
    obj["metadata"]["ownerReferences"] = [reference]
    obj["metadata"]["finalizers"] = ["a.example/x"]
    return obj


def _job_template() -> Json:
    return build.pod_template(labels={}, spec={"restartPolicy": "Never"})


def _old_spec() -> Json:
    template = build.pod_template(labels={"app": "rc"})
    return {"replicas": 1, "selector": {"app": "rc"}, "template": template}


def _definition() -> Json:
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.a"}],
        "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
    }
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


_EVENT = {
    "eventTime": "2026-11-16T09:25:53.123456Z",
    "reportingInstance": "i",
    "action": "A",
    "reason": "R",
    "type": "Normal",
    "series": {"count": 2, "lastObservedTime": "2026-11-16T09:25:53.123456Z"},
}
_ABOUT = {"kind": "Pod", "namespace": "default", "name": "a"}
_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_SAMPLES: list[tuple[Resource, Json]] = [
    (kube.PODS, _owned(build.pod("web", spec=_templated()))),
    (kube.NODES, build.node("n", taints=[{"key": "a", "effect": "NoSchedule"}])),
    (kube.NAMESPACES, build.namespace("space")),
    (kube.DEPLOYMENTS, build.deployment("web", 1, spec=_templated())),
    (kube.STATEFULSETS, build.stateful_set("web", 1)),
    (kube.DAEMONSETS, {**build.replica_set("web", 1), "kind": "DaemonSet"}),
    (kube.JOBS, {"metadata": {"name": "j"}, "spec": {"template": _job_template()}}),
    (kube.REPLICATIONCONTROLLERS, {"metadata": {"name": "rc"}, "spec": _old_spec()}),
    (kube.PDBS, build.pdb("b", match={"a": "b"}, min_available="50%")),
    (
        kube.LEASES,
        {
            "metadata": {"name": "l"},
            "spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1},
        },
    ),
    (
        kube.EVENTS,
        {
            "metadata": {"name": "e"},
            **_EVENT,
            "regarding": _ABOUT,
            "note": "n",
            "reportingController": "c",
        },
    ),
    (
        CORE_EVENTS,
        {
            "metadata": {"name": "e"},
            **_EVENT,
            "involvedObject": _ABOUT,
            "reportingComponent": "c",
        },
    ),
    (kube.PRIORITYCLASSES, {"metadata": {"name": "p"}, "value": 1, "globalDefault": True}),
    (kube.PVS, {"metadata": {"name": "v"}, "spec": {**_SPEC, "capacity": {"storage": "1Gi"}}}),
    (kube.PVCS, {"metadata": {"name": "c"}, "spec": _SPEC}),
    (kube.STORAGECLASSES, {"metadata": {"name": "s"}, "provisioner": "p"}),
    (SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
    (DEFINITIONS, _definition()),
]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, below in value.items():
            found += _places(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            found += _places(below, (*path, index))
    return found


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    made = copy.deepcopy(value)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = new
    return made


def _store() -> Store:
    return Store(clock=FakeClock(), rng=random.Random(1))


@pytest.mark.parametrize(
    ("resource", "sample"), _SAMPLES, ids=lambda each: getattr(each, "plural", "")
)
def test_the_samples_themselves_are_taken(resource: Resource, sample: Json) -> None:
    _store().create(resource, sample)


@given(st.sampled_from(_SAMPLES), st.data())
def test_nonsense_in_any_place_is_refused_with_a_status(
    sample: tuple[Resource, Json], data: st.DataObject
) -> None:
    resource, obj = sample
    store = _store()
    place = data.draw(st.sampled_from(_places(obj)))
    broken = _with(obj, place, data.draw(_NONSENSE))
    with suppress(Refusal):
        made = store.create(resource, broken)
        # What was taken can be read, and changed again by its owner.
        name, namespace = made["metadata"]["name"], made["metadata"].get("namespace")
        body = {"metadata": {"labels": {"x": "1"}}}
        store.patch(resource, name, body, namespace=namespace)


@given(st.sampled_from(_SAMPLES), st.sampled_from(list(PatchKind)), st.data())
def test_nonsense_patches_are_refused_with_a_status(
    sample: tuple[Resource, Json], kind: PatchKind, data: st.DataObject
) -> None:
    resource, obj = sample
    store = _store()
    made = store.create(resource, obj)
    nonsense = data.draw(_NONSENSE)
    place = data.draw(st.sampled_from(_places(obj)))
    if kind is PatchKind.JSON:
        pointer = "/" + "/".join(str(step).replace("/", "~1") for step in place)
        patch: Any = [{"op": "replace", "path": pointer, "value": nonsense}]
    else:
        patch = nonsense
        for step in reversed(place):
            patch = {step: patch} if isinstance(step, str) else [patch]
    name, namespace = made["metadata"]["name"], made["metadata"].get("namespace")
    for status in (False, True):
        with suppress(Refusal):
            store.patch(resource, name, patch, namespace=namespace, how=kind, status=status)
