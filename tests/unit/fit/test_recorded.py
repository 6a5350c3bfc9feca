"""What the real kube-scheduler said of random clusters, and whether we still say the same."""

from __future__ import annotations

import pytest

from common.cluster.records import NodeName
from common.fit import FitIndex, World
from common.fit.scores import by_plugin, ranking, totals
from tests.support.fit_cases import pods_to_judge, random_case, snapshot, softened
from tests.support.fit_records import FIT, SCORES, recorded

VERDICTS = recorded(FIT)
RATINGS = recorded(SCORES)


@pytest.mark.parametrize("seed", VERDICTS)
def test_finds_the_nodes_that_kube_scheduler_found(seed: str) -> None:
    case = random_case(int(seed))
    world = World(snapshot(case), FitIndex())
    found = {pod.name: list(world.feasible(pod)) for pod in pods_to_judge(case)}
    assert found == VERDICTS[seed]


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
def test_ranks_nodes_by_the_sum_of_all_scores(seed: str) -> None:
    case = softened(random_case(int(seed)))
    world = World(snapshot(case), FitIndex())
    for pod in pods_to_judge(case):
        question = world.ask(pod)
        plugins = RATINGS[seed].get(pod.name)
        if plugins:
            nodes = {name for scores in plugins.values() for name in scores}
            sums = {n: sum(scores.get(n, 0) for scores in plugins.values()) for n in nodes}
            ranked = ranking(question)
            assert dict(ranked) == sums
            assert [total for _, total in ranked] == sorted(sums.values(), reverse=True)
            assert totals(question).sum() >= sum(sums.values())
