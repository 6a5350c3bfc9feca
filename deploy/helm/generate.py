# SPDX-License-Identifier: Apache-2.0
"""Write what the chart has from elsewhere: copies of manifests, and the table of its values.

Helm reads nothing outside a chart, so the manifests that it shares with the kustomize base
are copied into `files/`. The README's table is made from the comments in `values.yaml`: a
comment right above a key makes a row, and the key's whole value is its default. With `--check`
nothing is written; what is not up to date is named and the exit code is 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1]
CHART = DEPLOY / "helm" / "evenkeel"
GUARDS = sorted((DEPLOY / "base" / "guards").glob("*-guard.yaml"))
COPIES = {
    "migrations.yaml": "crds/migrations.yaml",
    "reader.yaml": "base/reader.yaml",
    "viewer.yaml": "base/viewer.yaml",
    "rebalancer-rbac.yaml": "base/rebalancer.yaml",
    "extender-rbac.yaml": "base/extender.yaml",
    "priority-class.yaml": "base/priority-class.yaml",
    "scheduler-priority-class.yaml": "overlays/second-scheduler/priority-class.yaml",
    "rebalancer.yaml": "base/config/rebalancer.yaml",
    "extender.yaml": "overlays/second-scheduler/config/extender.yaml",
    "scheduler-config.yaml": "overlays/second-scheduler/config/scheduler-config.yaml",
    "scheduler-rbac.yaml": "overlays/second-scheduler/rbac.yaml",
    "rebalancer-surge.yaml": "base/rebalancer-surge.yaml",
    "bare-pods.yaml": "components/bare-pods/role.yaml",
    "namespace-opt-in.yaml": "components/namespace-opt-in/policy.yaml",
    "admission-guide.yaml": "components/admission-guide/policy.yaml",
    "servicemonitors.yaml": "components/monitoring/servicemonitors.yaml",
    "alerts.yaml": "components/monitoring/alerts.yaml",
    "dashboard.json": "components/monitoring/dashboard.json",
    **{f"guards/{guard.name}": f"base/guards/{guard.name}" for guard in GUARDS},
}
HEAD = "| value | default | meaning |\n|---|---|---|\n"
BEGIN, END = "<!-- values -->\n", "<!-- end of values -->\n"


def commented(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the path of every key that a comment stands above, with the comment."""
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if found := re.match(r"\s*# (.*)$", line):
            comment.append(found[1])
        elif found := re.match(r"(\s*)([\w-]+):", line):
            indent = len(found[1])
            path = [*((i, key) for i, key in path if i < indent), (indent, found[2])]
            if comment:
                yield tuple(key for _, key in path), " ".join(comment)
            comment = []
        else:
            comment = []


def value_at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for key in path:
        found = found[key]
    return found


def table(text: str) -> str:
    """Return the table of the values in the text of a values.yaml."""
    values = yaml.safe_load(text)
    rows = (
        f"| `{'.'.join(path)}` | `{json.dumps(value_at(values, path))}` | {comment} |\n"
        for path, comment in commented(text)
    )
    return HEAD + "".join(rows)


def readme() -> str:
    """Return the README with its table generated again."""
    before, rest = (CHART / "README.md").read_text().split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table((CHART / "values.yaml").read_text()) + END + after


def wanted() -> dict[Path, str]:
    """Return what every generated file should hold."""
    copies = {CHART / "files" / name: (DEPLOY / of).read_text() for name, of in COPIES.items()}
    return {**copies, CHART / "README.md": readme()}


def main(arguments: list[str]) -> int:
    stale = {p: text for p, text in wanted().items() if not p.exists() or p.read_text() != text}
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(DEPLOY.parent)} is not up to date: make docs")
        return 1 if stale else 0
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
