# SPDX-License-Identifier: Apache-2.0
"""What people wish of an installation: the same wish for kustomize and for the chart."""

from __future__ import annotations

import json

import yaml

from tests.support.deploy.chart import Combination, Json
from tests.support.docs.pages import Page
from tests.support.repository import DOCS

NONE = {"scheduler": {"mode": "none"}}
HOST = {"scheduler": {"mode": "controlPlane"}}
ACT = {"mode": "act"}
BARE = {"barePods": {"enabled": True}}
GUARD = {"podGuard": {"enabled": True}}
OPT_IN = {"namespaceOptIn": {"enabled": True}}
ADMISSION = {"guide": "admission"}
WATCHED = {"monitoring": {"enabled": True}}
EXPOSED = {"extender": {"exposeMetrics": True}}
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
LABEL = {"example.com/role": "scheduler"}
TAINT = {"key": "example.com/dedicated", "operator": "Exists"}
ON_SOME_HOSTS = [
    {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": LABEL},
    {"op": "add", "path": "/spec/template/spec/tolerations/-", "value": TAINT},
]
PAGE = DOCS / "deployment.md"
SECOND, CONTROL_PLANE = "overlays/second-scheduler", "overlays/control-plane"


def documented_patches(word: str) -> list[Json]:
    """Return the patches of the page that speak of something."""
    page = Page(PAGE, PAGE.read_text())
    [block] = [b.text for b in page.blocks if b.text.startswith("patches:") and word in b.text]
    found: list[Json] = yaml.safe_load(block)["patches"]
    return found


COMBINATIONS = (
    Combination("base", (), NONE),
    Combination("base", ("act", "monitoring"), {**NONE, **ACT, **WATCHED}),
    Combination("base", ("admission-guide",), {**NONE, **ADMISSION}),
    Combination(SECOND),
    Combination(SECOND, ("act",), ACT),
    Combination(SECOND, ("bare-pods",), BARE),
    Combination(SECOND, ("monitoring",), WATCHED),
    Combination(SECOND, ("namespace-opt-in",), OPT_IN),
    Combination(SECOND, ("pod-guard",), GUARD),
    Combination(
        SECOND,
        ("act", "bare-pods", "monitoring", "namespace-opt-in", "pod-guard"),
        {**ACT, **BARE, **WATCHED, **OPT_IN, **GUARD},
    ),
    Combination(
        SECOND,
        images=[{"name": "evenkeel", "newName": "example/evenkeel", "newTag": "mine"}],
        values={"image": {"repository": "example/evenkeel", "tag": "mine"}},
    ),
    Combination(
        SECOND,
        images=[{"name": "evenkeel", "newName": "example/evenkeel", "digest": DIGEST}],
        values={"image": {"repository": "example/evenkeel", "tag": "not", "digest": DIGEST}},
    ),
    Combination(
        SECOND,
        patches=documented_patches("priorityClassName"),
        values={"scheduler": {"priorityClassName": "system-cluster-critical"}},
    ),
    Combination(CONTROL_PLANE, (), HOST),
    Combination(
        CONTROL_PLANE,
        ("act", "bare-pods", "monitoring", "pod-guard"),
        {**HOST, **ACT, **BARE, **WATCHED, **GUARD},
    ),
    Combination(CONTROL_PLANE, ("expose-extender-metrics",), {**HOST, **EXPOSED}),
    Combination(
        CONTROL_PLANE,
        patches=[{"target": {"kind": "DaemonSet"}, "patch": json.dumps(ON_SOME_HOSTS)}],
        values={**HOST, "extender": {"nodeSelector": LABEL, "tolerations": [TAINT]}},
    ),
)

EVERYTHING = {**BARE, **WATCHED, **OPT_IN, **GUARD}

MORE: Json = {
    "extraArgs": ["-v=4"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
    "podAnnotations": {"example.com/a": "b"},
    "serviceAccountAnnotations": {"example.com/role": "c"},
}
"""What every program of the chart takes, besides its configuration."""

_AFFINITY: Json = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
_EVERY: Json = {**MORE, "priorityClassName": "mine"}
CHART_ONLY: dict[str, Json] = {
    "off": {"enabled": False},
    "nothing-optional": {
        "crds": {"enabled": False},
        "priorityClass": {"create": False},
        "networkPolicy": {"enabled": False},
        "podGuard": {"enabled": False},
    },
    "of-everyone": {
        **EVERYTHING,
        "commonLabels": {"example.com/team": "platform"},
        "load": {"cpuThreshold": 70, "metricExpiry": "120s"},
        "image": {"pullSecrets": ["mine"], "pullPolicy": "Always", "digest": DIGEST},
        "networkPolicy": {"from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]},
        "namespaceOptIn": {"enabled": True, "schedulerNames": ["default-scheduler", "other"]},
        "monitoring": {
            "enabled": True,
            "runbookBaseUrl": "https://git.example.com/evenkeel/blob/main",
            "labels": {"release": "prometheus"},
        },
        "rebalancer": {**_EVERY, "affinity": _AFFINITY, "tolerations": [TAINT]},
        "extender": {**_EVERY, "config": {"overloaded": "filter"}},
        "scheduler": {
            **_EVERY,
            "affinity": _AFFINITY,
            "tolerations": [TAINT],
            "authenticationReader": False,
            "config": {"parallelism": 4},
            "image": {"digest": DIGEST},
        },
    },
    "of-the-host": {**HOST, **EXPOSED, "extender": {**_EVERY, "exposeMetrics": True}},
}
"""Values that kustomize has no words for, by name."""
