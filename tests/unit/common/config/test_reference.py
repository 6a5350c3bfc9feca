# SPDX-License-Identifier: Apache-2.0
"""The reference page and the schemas that are made from the models."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from common.config import KINDS, Configuration, effective, load_config
from common.config.reference import json_schema, page, rows
from tests.support.repository import ROOT

EXAMPLES = re.findall(r"```yaml\n(.*?)```", page(), re.DOTALL)
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: str(kind.__name__))


def test_the_committed_page_is_up_to_date() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == page(), "run make docs"


def test_the_page_is_what_the_module_prints() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "common.config"], cwd=ROOT, capture_output=True, check=True
    )
    assert made.stdout.decode() == page()


@kinds
def test_every_key_has_a_type_and_a_meaning(kind: type[Configuration]) -> None:
    assert [
        row.key for row in rows(kind, effective(kind())) if not (row.type and row.meaning)
    ] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_on_the_page_load(example: str, tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(example)
    kind = KINDS[yaml.safe_load(example)["kind"]]
    assert load_config(str(file), kind) != kind()


def test_each_kind_has_an_example() -> None:
    assert [yaml.safe_load(example)["kind"] for example in EXAMPLES] == list(KINDS)


@kinds
def test_the_schema_takes_the_defaults(kind: type[Configuration]) -> None:
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(effective(kind()), schema)


@kinds
@pytest.mark.parametrize(
    "mistake",
    [
        {"cpuThreshold": 0},
        {"zebra": 1},
        {"metricExpiry": "30"},
        {"metricExpiry": 30},
        {"kind": "Deployment"},
        {"usageSource": "prom"},
    ],
    ids=str,
)
def test_the_schema_refuses_mistakes(kind: type[Configuration], mistake: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(effective(kind()) | mistake, json_schema(kind))


@kinds
def test_the_schema_wants_the_kind_to_be_named(kind: type[Configuration]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, json_schema(kind))


def test_the_schema_takes_off_for_the_temporary_budget() -> None:
    kind = KINDS["RebalancerConfiguration"]
    jsonschema.validate(effective(kind()) | {"temporaryPdb": "off"}, json_schema(kind))
