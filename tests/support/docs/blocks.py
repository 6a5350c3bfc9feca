# SPDX-License-Identifier: Apache-2.0
"""Data on pages: YAML and JSON parse, and what our programs are to read is read by them.

A block of YAML counts as configuration if it says so (`kind`), or if it has a key that only
the configuration has. Snippets are read like files whose head was left out.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from common.api.contract import API_VERSION
from common.config import KINDS, ConfigError, Configuration, load_config
from simulator.scenarios import load_scenario
from tests.support.docs.pages import Block, Page
from tests.support.repository import DEPLOY

CHART = DEPLOY / "helm" / "evenkeel"
_HEADS = frozenset({"apiVersion", "kind"})

Json = Any  # as YAML and JSON nest it


def problems(page: Page) -> list[str]:
    """Return what is wrong with the data on a page, one line each."""
    return [
        f"{page}:{block.line}: {why}"
        for block in page.blocks
        if block.language in ("yaml", "yml", "json")
        for why in _wrong(block)
    ]


def _wrong(block: Block) -> Iterator[str]:
    try:
        found = list(_documents(block))
    except (yaml.YAMLError, json.JSONDecodeError) as error:
        yield f"does not parse: {' '.join(str(error).split())}"
        return
    for document in found:
        if isinstance(document, dict):
            yield from _document(document)


def _documents(block: Block) -> Iterator[Json]:
    if block.language == "json":
        yield json.loads(block.text)
    else:
        yield from yaml.safe_load_all(block.text)


def _document(found: dict[str, Json]) -> Iterator[str]:
    kind = found.get("kind")
    if kind in KINDS:
        yield from _refusals(found, KINDS[str(kind)])
    elif kind == "Scenario":
        yield from _scenario(found)
    elif kind == "ConfigMap":
        yield from _config_map(found)
    elif kind == "Kustomization":
        yield from _kustomization(found)
    elif kind is None and _is_configuration(found):
        yield from _snippet(found)
    elif kind is None and _is_values(found):
        yield from _values(found)


def _refusals(found: Mapping[str, Json], kind: type[Configuration]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page.yaml")
        file.write_text(yaml.safe_dump(dict(found)))
        try:
            load_config(str(file), kind)
        except ConfigError as error:
            yield from (problem.removeprefix(f"{file}: ") for problem in error.problems)


def _scenario(found: Mapping[str, Json]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page.yaml")
        file.write_text(yaml.safe_dump(dict(found)))
        try:
            load_scenario(str(file))
        except ConfigError as error:
            yield from error.problems


def _config_map(found: Mapping[str, Json]) -> Iterator[str]:
    for text in (found.get("data") or {}).values():
        inside = yaml.safe_load(text)
        if isinstance(inside, dict):
            yield from _document(inside)


def _kustomization(found: Mapping[str, Json]) -> Iterator[str]:
    """A kustomization of the reader's own is elsewhere; what it uses of ours exists."""
    for key in ("resources", "components"):
        for path in found.get(key) or ():
            _, ours, rest = path.partition("deploy/")
            if ours and not (DEPLOY / rest).exists():
                yield f"no file deploy/{rest}"


def _keys(kind: type[Configuration]) -> frozenset[str]:
    return frozenset(str(info.alias) for info in kind.model_fields.values()) - _HEADS


def _is_configuration(found: Mapping[str, Json]) -> bool:
    return any(found.keys() & _keys(kind) for kind in KINDS.values()) and not _is_values(found)


def _snippet(found: Mapping[str, Json]) -> Iterator[str]:
    """One of the kinds must take it; the objections are those of the kind that has fewer."""
    said = [
        list(_refusals({"apiVersion": API_VERSION, "kind": name, **found}, kind))
        for name, kind in KINDS.items()
    ]
    yield from min(said, key=len)


def _chart(name: str) -> dict[str, Json]:
    path = CHART / name
    loaded = yaml.safe_load(path.read_text()) if path.exists() else {}
    return dict(loaded)


def _is_values(found: Mapping[str, Json]) -> bool:
    """Tell whether this is for the chart: its blocks are named after our programs."""
    blocks = {"image", "rebalancer", "extender", "scheduler", "monitoring", "barePods"}
    # The chart's `load` holds keys of the configuration, of which one is called `load` too.
    load = found.get("load")
    if isinstance(load, dict) and load.keys() & frozenset().union(*map(_keys, KINDS.values())):
        return True
    return bool(_chart("values.yaml")) and any(
        isinstance(found.get(key), dict) for key in blocks & found.keys()
    )


def _with_defaults(found: Mapping[str, Json], defaults: Mapping[str, Json]) -> dict[str, Json]:
    """Return the values as Helm validates them: with the chart's own where none are given."""
    whole = {**defaults, **found}
    for key in found.keys() & defaults.keys():
        if isinstance(found[key], dict) and isinstance(defaults[key], dict):
            whole[key] = _with_defaults(found[key], defaults[key])
    return whole


def _values(found: Mapping[str, Json]) -> Iterator[str]:
    validator = jsonschema.Draft202012Validator(_chart("values.schema.json"))
    whole = _with_defaults(found, _chart("values.yaml"))
    yield from (error.message for error in validator.iter_errors(whole))
    for name, kind in (
        ("rebalancer", "RebalancerConfiguration"),
        ("extender", "ExtenderConfiguration"),
    ):
        config = (found.get(name) or {}).get("config")
        if isinstance(config, dict):
            head = {"apiVersion": API_VERSION, "kind": kind}
            yield from _refusals({**head, **config}, KINDS[kind])
