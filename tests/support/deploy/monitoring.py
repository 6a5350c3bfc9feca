# SPDX-License-Identifier: Apache-2.0
"""The shipped alerts and dashboard, and which metrics their expressions speak of.

An expression is taken apart by what PromQL allows where: what is left of it without strings,
braces, ranges, groupings, functions and words of the language can only be names of metrics.
So a misspelt name is found whatever it looks like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from tests.support.repository import DEPLOY, DOCS
from tests.support.tables import read_table

Json = dict[str, Any]  # Any: a JSON object

COMPONENT: Final = DEPLOY / "components" / "monitoring"
OF_TARGETS: Final = frozenset(
    {"cluster", "job", "instance", "namespace", "pod", "service", "endpoint"}
)
"""Labels that Prometheus gives to everything it scrapes; `cluster` if it is configured to."""
SCOPE: Final = 'cluster=~"$cluster", namespace=~"$namespace"'
"""What every expression of the dashboard selects by: the variables at its top."""
NODE: Final = 'node=~"$node"'
"""What the panels of single nodes select by as well."""
NOT_OURS: Final = {"up": OF_TARGETS, "leader_election_master_status": OF_TARGETS | {"name"}}

_WORDS = frozenset({"and", "or", "unless", "offset", "bool", "inf", "nan"})
_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"")
_SELECTOR = re.compile(r"\b([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_RANGE = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
_NAME = re.compile(r"(?<![\w.$])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])")


@dataclass(frozen=True)
class Alert:
    """One rule, as it stands in the file."""

    name: str
    expr: str
    annotations: dict[str, str]
    labels: dict[str, str]


@dataclass(frozen=True)
class Query:
    """One expression of a panel, with Grafana's variables in it."""

    panel: str
    expr: str
    legend: str

    def asked(self, window: str) -> str:
        """Return what Prometheus would be asked, of all clusters, with windows of this length."""
        expr = self.expr.replace(f"{SCOPE}, ", "").replace(SCOPE, "").replace(f"{NODE}, ", "")
        return re.sub(r"\$__(rate_interval|range)\b", window, expr)


@dataclass(frozen=True)
class Spoken:
    """What an expression speaks of."""

    metrics: frozenset[str]
    labels: frozenset[str]
    """In groupings; which metric has them is not told."""
    matchers: tuple[tuple[str, str, str], ...]
    """Metric, label and one value that is looked for."""


def rules() -> Json:
    """Return the groups of rules in the form of Prometheus' own rule files."""
    found: Json = read_table(COMPONENT / "alerts.yaml")["spec"]
    return found


def alerts() -> list[Alert]:
    found = [rule for group in rules()["groups"] for rule in group["rules"]]
    return [Alert(r["alert"], r["expr"], r["annotations"], r["labels"]) for r in found]


def dashboard() -> Json:
    found: Json = json.loads((COMPONENT / "dashboard.json").read_text())
    return found


def panels() -> list[Json]:
    """Return the panels that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[Query]:
    return [
        Query(panel["title"], target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel["targets"]
    ]


def expressions() -> Iterator[tuple[str, str]]:
    """Return everything that Prometheus is asked, with where it stands."""
    yield from ((alert.name, alert.expr) for alert in alerts())
    yield from ((query.panel, query.asked("$__range")) for query in queries())


def spoken_of(expr: str) -> Spoken:
    """Take an expression apart."""
    grouped = {
        label.strip() for _, labels in _GROUPING.findall(expr) for label in labels.split(",")
    }
    selectors = _SELECTOR.findall(expr)
    matchers = tuple(
        (metric, label, value)
        for metric, inside in selectors
        for label, _, values in _MATCHER.findall(inside)
        for value in _alternatives(values)
    )
    bare = _GROUPING.sub(" ", expr)
    bare = re.sub(r"\{[^}]*\}", " ", bare)
    bare = _RANGE.sub(" ", bare)
    names = frozenset(_NAME.findall(bare)) - _WORDS
    return Spoken(names, frozenset(grouped - {""}), matchers)


def _alternatives(values: str) -> list[str]:
    """Return the values of `a|b` and of `x-(a|b)-y`."""
    found = re.fullmatch(r"([^(|]*)\(([^)]*)\)(.*)", values)
    if found is None:
        return values.split("|")
    return [f"{found[1]}{middle}{found[3]}" for middle in found[2].split("|")]


Exported = dict[str, dict[str, set[str]]]
"""Per name of a series its labels, and the values that each was seen with."""


def exported(*pages: str) -> Exported:
    """Return what pages of metrics hold."""
    found: Exported = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = found.setdefault(sample.name, {})
                for label, value in sample.labels.items():
                    labels.setdefault(label, set()).add(value)
    return found


def documented_values(metric: str) -> set[str]:
    """Return every word in backticks of a metric's row in docs/metrics.md."""
    page = (DOCS / "metrics.md").read_text()
    row = re.search(rf"^\| `{re.escape(metric)}` .*$", page, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", row[0])) if row else set()
