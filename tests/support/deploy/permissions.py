# SPDX-License-Identifier: Apache-2.0
"""Rights that are taken away from shipped roles, and what the API server says then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects
Right = tuple[str, str, str]
"""API group, resource, verb."""


def words_of(right: Right) -> str:
    """Return what the API server says when this is refused."""
    group, resource, verb = right
    return f"cannot {verb} resource {resource} in API group {group}"


def without(missing: Iterable[Right], files: Iterable[Path], folder: Path) -> list[Path]:
    """Write the shipped roles without some rights."""
    folder.mkdir()
    gone = set(missing)
    written = []
    for file in files:
        roles = [d for d in yaml.safe_load_all(file.read_text()) if "rules" in d]
        for role in roles:
            role["rules"] = [rule for old in role["rules"] for rule in _less(old, gone)]
        (folder / file.name).write_text(yaml.safe_dump_all(roles))
        written.append(folder / file.name)
    return written


def _less(rule: Json, gone: set[Right]) -> Iterator[Json]:
    """Yield a rule of one group and resource at a time, without what is gone."""
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            verbs = [verb for verb in rule["verbs"] if (group, resource, verb) not in gone]
            if verbs:
                yield {**rule, "apiGroups": [group], "resources": [resource], "verbs": verbs}


def shipped(documents: Iterable[Json]) -> Iterator[Right]:
    for role in documents:
        for rule in role.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from ((group, resource, verb) for verb in rule["verbs"])
