# SPDX-License-Identifier: Apache-2.0
"""`python -m common.fit`: a JSON line in, a JSON line out."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from common.fit.cases import Case, Verdict
from simulator import build


def ask(*lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "common.fit"]
    return subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)


def case(**objects: Any) -> str:
    return json.dumps(objects)


def test_answers_every_line_with_the_nodes_and_the_reasons() -> None:
    nodes = [build.node("a", cpu="2"), build.node("b", cpu="1", unschedulable=True)]
    small, large = build.pod("small", cpu="1"), build.pod("large", cpu="2")
    done = ask(
        case(nodes=nodes, pod=small),
        "",
        case(nodes=nodes, pod=large, pods=[build.pod("x", node="a"), build.pod("y", node="a")]),
    )
    assert done.returncode == 0
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"feasible": ["a"], "refused": {"b": ["node(s) were unschedulable"]}},
        {
            "feasible": [],
            "refused": {
                "a": ["Insufficient cpu"],
                "b": ["node(s) were unschedulable", "Insufficient cpu"],
            },
        },
    ]


def test_a_pod_that_no_api_server_has_seen_is_a_template() -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["rev"],
    }
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    labels = {"app": "web", "rev": "2"}
    pod = build.pod("new", labels=labels, spec={"affinity": rule})
    old = build.pod("old", node="a", labels={**labels, "rev": "1"})
    done = ask(case(nodes=[build.node("a")], pods=[old], pod=pod))
    assert json.loads(done.stdout)["feasible"] == ["a"]


def test_help_tells_every_part_of_a_case_and_of_an_answer() -> None:
    command = [sys.executable, "-m", "common.fit", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = (*Case.__struct_fields__, *Verdict.__struct_fields__)
    assert [part for part in parts if f'"{part}": ' not in told] == []


def test_says_which_line_makes_no_sense() -> None:
    done = ask(case(pod=build.pod("fine")), '{"nodes": 3}')
    assert done.returncode == 1
    assert done.stderr.startswith("line 2: ")
    assert len(done.stdout.splitlines()) == 1
