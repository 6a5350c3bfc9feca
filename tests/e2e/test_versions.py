# SPDX-License-Identifier: Apache-2.0
"""Every render of chart and kustomization is valid in every supported release of Kubernetes.

No release is built for this: each describes its API in its source. What only an API server can
judge is tested on the ones that run (`docs/deployment.md` has the table).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest
import yaml

from controlplane.build import TOOLS, build
from controlplane.openapi import descriptions
from controlplane.releases import RELEASES, Release
from tests.e2e.chart_values import CHART_ONLY, COMBINATIONS, PAGE
from tests.support.deploy.chart import CHART, Combination, Json, Tools
from tests.support.deploy.openapi import Description
from tests.support.releases import mutates

MUTATING = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.minor)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture(scope="module")
def description(release: Release) -> Description:
    return Description(descriptions(release))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(build(extras=TOOLS), tmp_path_factory.mktemp("versions"))


@pytest.fixture(scope="module")
def kustomized(tools: Tools) -> dict[str, list[Json]]:
    """What kubectl renders knows nothing of a cluster: once is enough."""
    extra = Combination("overlays/second-scheduler", ("namespace-opt-in-kyverno", "no-surge"))
    return {str(each): documents(tools.kustomize(each)) for each in (*COMBINATIONS, extra)}


def documents(text: str) -> list[Json]:
    return [each for each in yaml.safe_load_all(text) if each]


def complaints(description: Description, renders: Iterable[list[Json]]) -> list[str]:
    """Return what is wrong with the objects of renders, each different object once."""
    different = {json.dumps(obj, sort_keys=True): obj for render in renders for obj in render}
    return [each for obj in different.values() for each in description.complaints(obj)]


def test_what_kustomize_renders_is_valid(
    release: Release, description: Description, kustomized: dict[str, list[Json]]
) -> None:
    newer = [obj for render in kustomized.values() for obj in render if obj["kind"] in MUTATING]
    older = [[obj for obj in r if obj["kind"] not in MUTATING] for r in kustomized.values()]
    assert complaints(description, older) == []
    unknown = {each.rpartition(" ")[2] for each in complaints(description, [newer])}
    assert unknown == (set() if mutates(release) else MUTATING)


def test_what_the_chart_renders_is_valid(
    release: Release, description: Description, tools: Tools
) -> None:
    wishes = {**{str(each): each.values for each in COMBINATIONS}, **CHART_ONLY}
    renders = []
    for values in wishes.values():
        if mutates(release) or not needs_mutation(values):
            renders.append(documents(tools.template(values, cluster=release.kubernetes)))
        else:
            file = tools.write(values)
            version = f"--kube-version={release.kubernetes}"
            refusal = tools.refusal("template", "evenkeel", str(CHART), version, f"-f={file}")
            assert "needs MutatingAdmissionPolicies" in refusal
            less = {**values, "namespaceOptIn": {}, "guide": "extender"}
            renders.append(documents(tools.template(less, cluster=release.kubernetes)))
    assert complaints(description, renders) == []


def needs_mutation(values: Json) -> bool:
    opt_in = values.get("namespaceOptIn", {}).get("enabled", False)
    return bool(opt_in) or values.get("guide") == "admission"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": {"replica": 2}}, "'replica' was unexpected"),
        ({"spec": {"replicas": "two"}}, "'two' is not of type 'integer'"),
        ({"apiVersion": "apps/v2"}, "there is no apps/v2 Deployment"),
        ({"apiVersion": "apps/v1", "kind": "Deploymint"}, "there is no apps/v1 Deploymint"),
    ],
)
def test_what_no_api_server_would_take_is_found(
    description: Description, change: Json, words: str
) -> None:
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, **change}
    assert words in "\n".join(description.complaints(obj))


def test_the_page_names_the_releases_that_are_checked() -> None:
    section = PAGE.read_text().partition("## Versions of Kubernetes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (1\.\d+) \| (v\S+) ", section, re.MULTILINE)
    assert rows == [(release.minor, release.kubernetes) for release in RELEASES]
