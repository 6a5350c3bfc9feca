# SPDX-License-Identifier: Apache-2.0
"""The chart says of itself what is so, without any tool."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from common import __version__
from common.config import (
    ExtenderConfiguration,
    RebalancerConfiguration,
    load_config,
    load_settings_hash,
)
from common.config.shared import LoadSettings
from rebalancer.config_reload import FIXED
from tests.support.deploy.chart import CHART, Json
from tests.support.repository import DEPLOY

GENERATE = DEPLOY / "helm" / "generate.py"


@pytest.fixture
def values() -> Json:
    found: Json = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@pytest.fixture
def schema() -> Json:
    found: Json = json.loads((CHART / "values.schema.json").read_text())
    return found


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path


def rows() -> list[tuple[str, ...]]:
    """Return the paths in the first column of the README's table."""
    lines = (CHART / "README.md").read_text().splitlines()
    return [tuple(line.split("`")[1].split(".")) for line in lines if line.startswith("| `")]


def test_versions_are_those_of_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize("folder", ["base", "overlays/second-scheduler", "overlays/control-plane"])
def test_kustomize_takes_the_image_of_the_same_version(folder: str) -> None:
    found = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())
    tags = [image["newTag"] for image in found["images"] if image["name"] == "evenkeel"]
    assert tags == [__version__]


def test_what_is_generated_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, GENERATE, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_value_is_explained(values: Json) -> None:
    explained = rows()
    for leaf in leaves(values):
        assert any(leaf[: len(row)] == row for row in explained), leaf


def test_the_defaults_keep_the_schema(values: Json, schema: Json) -> None:
    jsonschema.validate(values, schema)


def test_the_schema_knows_the_values_and_no_others(schema: Json) -> None:
    assert known(schema, schema) - {("global",)} == set(rows())


def known(part: Json, whole: Json, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Return the paths that a schema has properties for; resources are one value."""
    name = part.get("$ref", "").rpartition("/")[2]
    resolved = whole["definitions"][name] if name else part
    if "properties" not in resolved or name == "resources":
        return {path}
    inner = (known(p, whole, (*path, key)) for key, p in resolved["properties"].items())
    return set().union(*inner)


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "Act"},
        {"modes": "act"},
        {"scheduler": {"mode": "first"}},
        {"scheduler": {"replicas": "2"}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"image": {"digest": "0123"}},
        {"monitoring": {"enable": True}},
        {"rebalancer": {"configuration": {}}},
        {"rebalancer": {"resources": {"request": {}}}},
    ],
    ids=json.dumps,
)
def test_what_is_misspelt_is_refused(schema: Json, change: Json) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(change, schema)


def words_of(name: str) -> list[str]:
    """Return the words that a definition of the chart stands for."""
    text = (CHART / "templates" / "_configuration.tpl").read_text()
    [found] = re.findall(rf'define "{re.escape(name)}" -}}}}\n(.*?)\n{{{{- end', text)
    return str(found).split()


def test_the_chart_knows_the_keys_that_decide_load() -> None:
    fields = LoadSettings.model_fields.values()
    assert words_of("evenkeel.loadKeys") == [field.alias for field in fields]


def test_the_chart_knows_the_keys_that_need_a_restart() -> None:
    fields = RebalancerConfiguration.model_fields
    assert words_of("evenkeel.fixedKeys") == [fields[name].alias for name in FIXED]


def test_what_may_differ_from_program_to_program_does_not_decide_load() -> None:
    own = {"bearerTokenFile": "/a", "caFile": "/b", "insecureSkipVerify": True, "timeout": "3s"}
    assert words_of("evenkeel.ownKeys") == list(own)
    asked = {"url": "http://prometheus:9090"}
    one, other = (
        LoadSettings.model_validate({"usageSource": "prometheus", "prometheus": each})
        for each in (asked, {**asked, **own})
    )
    assert load_settings_hash(one) == load_settings_hash(other)


def test_the_shipped_configurations_are_good_ones() -> None:
    files = CHART / "files"
    rebalancer = load_config(str(files / "rebalancer.yaml"), RebalancerConfiguration)
    assert rebalancer.mode.value == "observe"
    load_config(str(files / "extender.yaml"), ExtenderConfiguration)
