# SPDX-License-Identifier: Apache-2.0
"""How the real kube-scheduler scored the nodes of random clusters; we score the same."""

from __future__ import annotations

import pytest

from common.cluster.records import NodeName
from common.fit import FitIndex, World
from simulator.scheduler.scores import by_plugin, totals
from tests.support.worlds.fit_cases import pods_to_judge, random_case, snapshot, softened
from tests.support.worlds.fit_records import SCORES, recorded

RATINGS = recorded(SCORES)


@pytest.mark.parametrize("seed", RATINGS)
def test_scores_nodes_as_kube_scheduler_did(seed: str) -> None:
    case = softened(random_case(int(seed)))
    world = World(snapshot(case), FitIndex())
    for pod in pods_to_judge(case):
        question = world.ask(pod)
        ours = by_plugin(question)
        rows = question.index.facts.row_of
        for plugin, nodes in RATINGS[seed].get(pod.name, {}).items():
            rated = {
                n: int(ours[plugin][rows[NodeName(n)]]) if plugin in ours else 0 for n in nodes
            }
            assert (plugin, rated) == (plugin, nodes), pod.name


@pytest.mark.parametrize("seed", RATINGS)
def test_sums_the_scores_of_all_plugins(seed: str) -> None:
    case = softened(random_case(int(seed)))
    world = World(snapshot(case), FitIndex())
    for pod in pods_to_judge(case):
        question = world.ask(pod)
        mask, plugins = question.mask(), RATINGS[seed].get(pod.name)
        if plugins:
            nodes = {name for scores in plugins.values() for name in scores}
            sums = {n: sum(scores.get(n, 0) for scores in plugins.values()) for n in nodes}
            rows = question.index.facts.row_of
            found = totals(question)
            feasible = {str(name): int(found[row]) for name, row in rows.items() if mask[row]}
            assert feasible == sums
