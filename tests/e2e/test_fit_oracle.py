# SPDX-License-Identifier: Apache-2.0
"""Our fit and our scores against those of the real kube-scheduler, on random clusters.

The seed comes from the commit, so that every commit tries other clusters; it is printed. In
CI it is always the same: a verdict on a change is about the change.
`EVENKEEL_FIT_SEED=n` plays one again, `EVENKEEL_FIT_CLUSTERS=n` says how many clusters of
25 pods to try, and `--all-seeds` tries enough of them for the figures on coverage.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from common.api.objects import Pod
from common.clock import SYSTEM
from common.fit import FitIndex, World
from common.fit.cases import Case, candidate_of, snapshot_of
from common.kube.client import KubeClient, connect
from common.kube.errors import KubeError
from controlplane.cluster import ControlPlane
from simulator.scheduler.scores import by_plugin
from tests.e2e.fit_agreement import FAMILIES, Figures, Opinion, opinions
from tests.e2e.fit_shrink import smallest
from tests.support.oracles.fit import (
    BINDING,
    FILTERING,
    FitOracle,
    ScoreOracle,
    Scoring,
    extender,
    write_config,
)
from tests.support.oracles.fit_stand import FitStand, bare_control_plane
from tests.support.stands.control_plane import Say
from tests.support.worlds.fit_cases import random_case, softened
from tests.support.worlds.fit_dice import ClusterCase, readable
from tests.support.worlds.fit_records import FIT, SCORES, Scores, Verdicts, keep

pytestmark = pytest.mark.real

CLUSTERS = 8
CLUSTERS_FOR_FIGURES = 88
SCORED_CLUSTERS = 2
SCORED_CLUSTERS_FOR_FIGURES = 10
FEWEST_REFUSALS = 50
SMALLEST_SHARE = 0.6
FALLBACK = 20261116


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of which only the scheduler thinks."""
    folder = tmp_path_factory.mktemp("judge")
    with bare_control_plane(folder, write_config(folder, FILTERING)) as plane:
        yield plane


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--all-seeds"))


async def test_finds_the_nodes_that_kube_scheduler_finds(
    judge: ControlPlane, tmp_path: Path, say: Say, thorough: bool
) -> None:
    first, figures = first_seed(), Figures()
    verdicts: Verdicts = {}
    count = clusters(CLUSTERS_FOR_FIGURES if thorough else CLUSTERS)
    say(f"EVENKEEL_FIT_SEED={first}, {count} clusters")
    async with extender() as (recorder, url), admin(judge) as client:
        judge.configure_scheduler(write_config(tmp_path, FILTERING), extender_url=url)
        oracle = FitOracle(FitStand(client), recorder)
        for seed in range(first, first + count):
            case = random_case(seed)
            for guess in opinions(await oracle.judge(case)):
                opinion = await certain(oracle, case, guess, figures, tmp_path)
                figures.count(opinion)
                verdicts.setdefault(str(seed), {})[opinion.name] = sorted(opinion.ours)
    keep(FIT, verdicts)
    say(str(figures))
    if thorough:
        assert figures.share_partial >= SMALLEST_SHARE
        assert min(figures.sole[family] for family in FAMILIES) >= FEWEST_REFUSALS
        assert figures.by_nominated
        assert figures.by_terminating


async def test_scores_nodes_as_kube_scheduler_does(
    judge: ControlPlane, tmp_path: Path, thorough: bool
) -> None:
    first = first_seed()
    count = SCORED_CLUSTERS_FOR_FIGURES if thorough else SCORED_CLUSTERS
    async with extender() as (_, url), admin(judge) as client:
        judge.configure_scheduler(write_config(tmp_path, BINDING), extender_url=url)
        oracle = ScoreOracle(judge, FitStand(client))
        await oracle.listen()
        scores: Scores = {}
        for seed in range(first, first + count):
            for scoring in await oracle.score(softened(random_case(seed))):
                name = scoring.pod["metadata"]["name"]
                assert our_scores(scoring) == scoring.scores, f"{name} of seed {seed}"
                scores.setdefault(str(seed), {})[name] = scoring.scores
    keep(SCORES, scores)
    assert scores


def admin(plane: ControlPlane) -> contextlib.AbstractAsyncContextManager[KubeClient]:
    """Connect to the judging control plane; no one else needs to be spared."""
    return connect(kubeconfig=str(plane.kubeconfig), qps=10_000, burst=10_000, clock=SYSTEM)


def first_seed() -> int:
    """Return the seed to start with: given, or of the commit."""
    given = os.environ.get("EVENKEEL_FIT_SEED")
    if given:
        return int(given)
    if os.environ.get("CI"):
        return FALLBACK
    git = ("git", "rev-parse", "HEAD")
    done = subprocess.run(git, capture_output=True, text=True, cwd=Path(__file__).parent)
    return int(done.stdout[:6], 16) * 100 if done.returncode == 0 else FALLBACK


def clusters(usual: int) -> int:
    return int(os.environ.get("EVENKEEL_FIT_CLUSTERS", usual))


async def certain(
    oracle: FitOracle, case: ClusterCase, opinion: Opinion, figures: Figures, folder: Path
) -> Opinion:
    """Return an opinion on which both agree; a disagreement may be news that came late."""
    if opinion.agree:
        return opinion
    figures.asked_again += 1
    (again,) = opinions(await oracle.judge(case.alone(opinion.name)))
    if not again.agree:
        first = f"kube-scheduler says: {again.judgement.message}\nwe say: {again.message}\n"
        pytest.fail(first + await report(oracle, case.alone(opinion.name), folder))
    return again


async def report(oracle: FitOracle, case: ClusterCase, folder: Path) -> str:
    """Make a disagreement small, and say how to play it again."""

    async def still(smaller: ClusterCase) -> bool:
        with contextlib.suppress(KubeError):
            return not all(o.agree for o in opinions(await oracle.judge(smaller)))
        return False

    small = await smallest(case, still)
    (opinion,) = opinions(await oracle.judge(small))
    path = folder / f"{opinion.name}.jsonl"
    path.write_text(opinion.line() + "\n")
    return (
        f"kube-scheduler finds {sorted(opinion.judgement.feasible)}, we {sorted(opinion.ours)}\n"
        f"it says: {opinion.judgement.message}\nwe say:  {opinion.message}\n"
        f"{yaml.safe_dump(readable(small), sort_keys=False)}\n"
        f"seed {case.seed}; play it again: python -m common.fit < {path}"
    )


def our_scores(scoring: Scoring) -> dict[str, dict[str, int]]:
    """Return our scores of the same plugins and nodes; no opinion counts as nothing."""
    seen = {**scoring.seen, "pod": {"metadata": {"name": "nobody"}}}
    world = World(snapshot_of(msgspec.convert(seen, Case)), FitIndex())
    question = world.ask(candidate_of(msgspec.convert(scoring.pod, Pod)))
    ours = by_plugin(question)
    rows = question.index.facts.row_of
    return {
        plugin: {
            node: int(ours[plugin][rows[node]]) if plugin in ours else 0  # type: ignore[index]
            for node in nodes
        }
        for plugin, nodes in scoring.scores.items()
    }
