# SPDX-License-Identifier: Apache-2.0
"""The page on security lists the permissions that the shipped roles grant: no more, no less."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.repository import DEPLOY, DOCS

BASE = DEPLOY / "base"
PAGE = (DOCS / "security.md").read_text()
_PERMISSION = re.compile(r"^\| ((?:`[\w./-]+`(?:, )?)+): ([a-z, ]+)", re.MULTILINE)

Permission = tuple[str, str]


def listed(text: str, account: str) -> set[Permission]:
    """Return the resources and verbs in the table of an account."""
    section = text.split(f"### {account}\n")[1].split("\n### ")[0]
    return {
        (resource, verb)
        for resources, verbs in _PERMISSION.findall(section)
        for resource in re.findall(r"`([^`]+)`", resources)
        for verb in re.findall(r"\b(get|list|watch|create|update|patch|delete)\b", verbs)
    }


def granted(*files: str) -> set[Permission]:
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
    assert listed(PAGE, account) == granted(*files)


@pytest.mark.parametrize(
    ("line", "permission"),
    [
        ("| `pods/eviction`: create |", ("pods/eviction", "create")),
        ("| `events`: create, patch |", ("events", "patch")),
    ],
)
def test_a_permission_that_is_left_out_is_missed(line: str, permission: Permission) -> None:
    assert line in PAGE
    assert permission in listed(PAGE, "evenkeel-rebalancer")
    assert permission not in listed(PAGE.replace(line, "| – |"), "evenkeel-rebalancer")
