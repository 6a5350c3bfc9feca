# SPDX-License-Identifier: Apache-2.0
"""Alerts lead to words that help, and the dashboard works with any data source."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.support.deploy.monitoring import (
    COMPONENT,
    SCOPE,
    Alert,
    Json,
    alerts,
    dashboard,
    panels,
    queries,
    spoken_of,
)
from tests.support.repository import DOCS, ROOT

PAGE = DOCS / "monitoring.md"


def anchors(page: str) -> set[str]:
    """Return what links can point to: headings in the form that Git hosts give them."""
    heads = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_an_alert_says_what_is_wrong_and_where_to_read_on(alert: Alert) -> None:
    assert alert.labels["severity"] in {"info", "warning", "critical"}
    assert alert.annotations.keys() == {"summary", "description", "runbook"}
    assert len(alert.annotations["summary"]) <= 80
    page, _, anchor = alert.annotations["runbook"].partition("#")
    assert anchor == alert.name.lower()
    assert anchor in anchors((ROOT / page).read_text())


def test_every_alert_that_is_described_exists() -> None:
    described = re.findall(r"^### (Evenkeel\w+)$", PAGE.read_text(), re.MULTILINE)
    assert described == [alert.name for alert in alerts()]


def test_the_dashboard_names_no_data_source_of_its_own() -> None:
    sources = re.findall(r'"uid": "([^"]*)"', json.dumps([dashboard()["panels"]]))
    assert set(sources) == {"${datasource}"}
    variable, *_ = dashboard()["templating"]["list"]
    assert (variable["name"], variable["type"]) == ("datasource", "datasource")


def test_everything_on_the_dashboard_is_of_the_selected_cluster_and_namespace() -> None:
    _, *variables = dashboard()["templating"]["list"]
    assert [each["name"] for each in variables] == ["cluster", "namespace", "node"]
    # Prometheus may give no such labels; what matches everything matches none, too.
    assert {each["allValue"] for each in variables} == {".*"}
    asked = [query.expr for query in queries()]
    asked += [each["expr"] for each in dashboard()["annotations"]["list"]]
    for expr in asked:
        names = re.findall(r"\b(?:evenkeel|process)_\w+", expr)
        assert names
        assert expr.count(SCOPE) == len(names), expr


def test_each_node_is_shown_and_can_be_chosen() -> None:
    asked = [query.expr for query in queries() if "node" in spoken_of(query.expr).labels]
    for resource in ("cpu", "memory"):
        mine = [expr for expr in asked if f'resource="{resource}"' in expr]
        # Now, of the busiest; and over time, of those that the variable names.
        assert len(mine) == 2
        assert sum('node=~"$node"' in expr for expr in mine) == 1


def test_migrations_are_marked_on_every_panel() -> None:
    (annotation,) = dashboard()["annotations"]["list"]
    assert annotation["enable"]
    assert ("evenkeel_evictions_total", "result", "accepted") in spoken_of(
        annotation["expr"]
    ).matchers


def test_panels_are_told_apart_and_explained() -> None:
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in every}) == len(every)
    assert all(panel["description"] for panel in panels())
    for panel in panels():
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


def test_no_two_panels_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        cells = _cells(panel["gridPos"])
        assert not taken & cells, panel["title"]
        taken |= cells
    assert max(x for x, _ in taken) < 24


def test_legends_name_labels_that_are_left_by_the_query() -> None:
    for query in queries():
        named = set(re.findall(r"{{\s*(\w+)\s*}}", query.legend))
        given = spoken_of(query.expr).labels
        assert named <= given, query


def test_the_dashboard_is_found_by_grafana_under_a_name_that_stays() -> None:
    component = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())
    (generated,) = component["configMapGenerator"]
    assert generated["options"]["disableNameSuffixHash"]
    assert generated["options"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize(
    ("expr", "metrics", "labels"),
    [
        ("a_total", {"a_total"}, set()),
        ("sum by (x, y) (rate(a_total[5m])) / 2", {"a_total"}, {"x", "y"}),
        ('a{x="b c"} and on (job) d == 1', {"a", "d"}, {"job"}),
        ("a unless a offset 15m", {"a"}, set()),
        ("max(a * on (i) group_left (p) b) > 1e3", {"a", "b"}, {"i", "p"}),
        ("(sum(a) or vector(0)) == 0", {"a"}, set()),
        ("histogram_quantile(0.9, sum by (le) (rate(h_bucket[$__range])))", {"h_bucket"}, {"le"}),
    ],
)
def test_expressions_are_taken_apart(expr: str, metrics: set[str], labels: set[str]) -> None:
    found = spoken_of(expr)
    assert (set(found.metrics), set(found.labels)) == (metrics, labels)


def test_values_that_are_looked_for_are_taken_one_by_one() -> None:
    found = spoken_of('a{x=~"b|c", y!="d"} + up{job=~"e-(f|g)-h"}')
    assert found.matchers == (
        ("a", "x", "b"),
        ("a", "x", "c"),
        ("a", "y", "d"),
        ("up", "job", "e-f-h"),
        ("up", "job", "e-g-h"),
    )


def _cells(place: Json) -> set[tuple[int, int]]:
    across = range(place["x"], place["x"] + place["w"])
    down = range(place["y"], place["y"] + place["h"])
    return {(x, y) for x in across for y in down}
