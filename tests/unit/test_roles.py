"""The shipped roles grant what the code uses: no more, no less."""

from __future__ import annotations

from pathlib import Path

import yaml

from common.cluster import reader
from common.kube.resources import NODE_METRICS, POD_METRICS

READER = Path(__file__).parents[2] / "deploy" / "base" / "reader.yaml"


def granted() -> dict[tuple[str, str], set[str]]:
    role = yaml.safe_load(READER.read_text())
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_reader_may_read_exactly_what_is_watched_and_measured() -> None:
    watched = {(r.resource.group, r.resource.plural) for r in reader.READINGS}
    measured = {(kind.group, kind.plural) for kind in (NODE_METRICS, POD_METRICS)}
    assert granted().keys() == watched | measured


def test_the_reader_may_change_nothing() -> None:
    assert set().union(*granted().values()) <= {"get", "list", "watch"}
