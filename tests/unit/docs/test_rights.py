"""The page on security lists the rights that the shipped roles grant: no more, no less."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.docs import ROOT

BASE = ROOT / "deploy" / "base"
PAGE = (ROOT / "docs" / "security.md").read_text()
_RIGHT = re.compile(r"^\| ((?:`[\w./-]+`(?:, )?)+): ([a-z, ]+)", re.MULTILINE)

Right = tuple[str, str]


def told(text: str, account: str) -> set[Right]:
    """Return the resources and verbs in the table of an account."""
    section = text.split(f"### {account}\n")[1].split("\n### ")[0]
    return {
        (resource, verb)
        for resources, verbs in _RIGHT.findall(section)
        for resource in re.findall(r"`([^`]+)`", resources)
        for verb in re.findall(r"\b(get|list|watch|create|update|patch|delete)\b", verbs)
    }


def granted(*files: str) -> set[Right]:
    """Return what the roles in some files grant; the metrics API by its full name."""
    return {
        (_named(resource, group), verb)
        for role in _roles(BASE / file for file in files)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _named(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group == "metrics.k8s.io" else resource


def _roles(paths: Iterable[Path]) -> list[dict[str, Any]]:
    found = [document for path in paths for document in _documents(path)]
    return [document for document in found if document["kind"] in ("ClusterRole", "Role")]


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize(
    ("account", "files"),
    [
        ("evenkeel-extender", ("extender.yaml",)),
        ("evenkeel-rebalancer", ("rebalancer.yaml", "reader.yaml")),
    ],
)
def test_the_page_lists_what_is_granted(account: str, files: tuple[str, ...]) -> None:
    assert told(PAGE, account) == granted(*files)


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("| `pods/eviction`: create |", ("pods/eviction", "create")),
        ("| `events`: create, patch |", ("events", "patch")),
    ],
)
def test_a_right_that_is_left_out_is_missed(line: str, right: Right) -> None:
    assert line in PAGE
    assert right in told(PAGE, "evenkeel-rebalancer")
    assert right not in told(PAGE.replace(line, "| – |"), "evenkeel-rebalancer")
