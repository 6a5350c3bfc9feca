# SPDX-License-Identifier: Apache-2.0
"""Rounds in columns lead to the same belief, to the bit, as pod after pod."""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import inf, nan

import pytest

from common.cache.snapshot import NodeView, Snapshot
from common.checkpoint import no_checkpoint
from common.cluster.records import NodeName, PodUid
from common.config import LoadSettings
from common.load.freshness import Limits, began_before, covers, uses_nothing
from common.load.overhead import LAG_S
from common.load.pod_samples import PodSamples
from common.load.roster import roster_after
from common.load.values import Load
from common.usage.columns import UsageColumns
from common.usage.history import PodHistory, first, follow
from common.usage.source import Sample, Usage
from tests.support.worlds.load import START_S, LoadWorld, running_since, waiting

NODES = 4
ROUNDS = 8
ODD = (nan, inf, -1.0, 1e30)


class OneByOne:
    """What a tracker learns from samples, computed pod after pod."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self.history: dict[PodUid, PodHistory] = {}

    def observe(self, sample: Sample, snapshot: Snapshot, now_s: float) -> None:
        latest_s = now_s + self._settings.clock_skew.seconds
        pages = dict[PodUid, PodHistory]()
        for view in snapshot.nodes.values():
            usages = possible(view, sample.pods, latest_s)
            for uid, pod in view.pods.items():
                page, usage = self.history.get(uid), usages[uid]
                page = None if page is not None and page.end_s > latest_s else page
                if usage is not None and covers(usage, pod):
                    if page is None:
                        page = first(usage)
                    elif usage.end_s > page.end_s:
                        page = follow(page, usage, self._settings.smoothing.seconds)
                if page is not None:
                    pages[uid] = page
        self.history = pages


def possible(
    view: NodeView, measured: Mapping[str, Usage], latest_s: float
) -> dict[PodUid, Usage | None]:
    limits = Limits(view.node, latest_s)
    found = {uid: measured.get(pod.key) for uid, pod in view.pods.items()}
    return {
        uid: usage if usage is not None and limits.refuse(usage) is None else None
        for uid, usage in found.items()
    }


def residual(node: Usage, view: NodeView, usages: Mapping[PodUid, Usage | None]) -> Load | None:
    cpu_milli, mem_bytes = node.cpu_milli, node.mem_bytes
    for uid, pod in view.pods.items():
        usage = usages[uid]
        if uses_nothing(pod, node.end_s):
            continue
        if not began_before(pod, node.start_s):
            return None
        if usage is None or usage.end_s < node.start_s - LAG_S:
            return None
        cpu_milli -= usage.cpu_milli
        mem_bytes -= usage.mem_bytes
    return Load(cpu_milli, mem_bytes)


class Draw:
    """A cluster that changes between rounds, and samples of which some are odd."""

    def __init__(self, seed: int) -> None:
        self.world = LoadWorld()
        self.random = random.Random(seed)
        self._pods: list[str] = []
        for number in range(NODES):
            self.world.node(f"n{number}", cpu=self.random.choice(("8", "2", "0")))
        for _ in range(12):
            self._arrive()

    def change(self) -> None:
        self.world.pass_time(self.random.choice((15.0, 15.0, 40.0, -120.0)))
        if self.random.random() < 0.6:
            self._arrive()
        if self.random.random() < 0.4:
            name = self.random.choice(self._pods)
            self._pods.remove(name)
            self.world.leave(name)
        if self.random.random() < 0.1:
            self.world.node(f"n{self.random.randrange(NODES)}", uid=f"new-{self.world.now_s}")

    def sample(self) -> Sample:
        snapshot = self.world.state.snapshot()
        nodes = {name: self._usage(5_000.0) for name in snapshot.nodes}
        pods = {pod.key: self._usage(900.0) for pod in snapshot.pods.values()}
        keep = self.random.random() < 0.5
        return Sample(nodes=nodes, pods={k: u for k, u in pods.items() if keep or self._often()})

    def _often(self) -> bool:
        return self.random.random() < 0.9

    def _usage(self, cpu: float) -> Usage:
        end_s = self.world.now_s - self.random.choice((0.0, 3.0, 17.25, -600.0, 90.0))
        figures = [cpu * self.random.random(), 2e8 * self.random.random(), end_s, 15.0]
        if self.random.random() < 0.1:
            figures[self.random.randrange(4)] = self.random.choice(ODD)
        return Usage(*figures)

    def _arrive(self) -> None:
        now_s, number = self.world.now_s, self.random.randrange(10**9)
        age_s = self.random.choice((5.0, 20.0, 3_600.0))
        states = (None, running_since(now_s - age_s + 2.0), waiting("CrashLoopBackOff"))
        self._pods.append(f"p{number}")
        self.world.pod(
            f"p{number}",
            f"n{self.random.randrange(NODES)}",
            scheduled_s=now_s - age_s,
            unscheduled=self.random.random() < 0.1,
            phase=self.random.choice(("Running", "Running", "Pending", "Succeeded")),
            state=self.random.choice(states),
        )


@pytest.mark.parametrize("seed", range(20))
def test_histories_are_those_of_single_pods(seed: int) -> None:
    draw, settings = Draw(seed), LoadSettings()
    oracle = OneByOne(settings)
    for _ in range(ROUNDS):
        sample, snapshot = draw.sample(), draw.world.state.snapshot()
        draw.world.tracker.observe(sample, snapshot, draw.world.now_s)
        oracle.observe(sample, snapshot, draw.world.now_s)
        found = draw.world.tracker._estimator.history
        assert dict(found) == oracle.history
        assert len(found) == len(oracle.history)
        draw.change()


@pytest.mark.parametrize("seed", range(20))
def test_residuals_are_those_of_single_pods(seed: int) -> None:
    draw = Draw(seed)
    for _ in range(ROUNDS):
        sample, snapshot = draw.sample(), draw.world.state.snapshot()
        latest_s = draw.world.now_s + 30.0
        roster = roster_after(None, snapshot, no_checkpoint)
        limits = [Limits(view.node, latest_s) for view in snapshot.nodes.values()]
        samples = PodSamples(UsageColumns.of(sample.pods), roster, limits, no_checkpoint)
        residuals = samples.residuals(sample.nodes)
        for place, (name, view) in enumerate(snapshot.nodes.items()):
            node = sample.nodes[name]
            if limits[place].refuse(node) is None:
                expected = residual(node, view, possible(view, sample.pods, latest_s))
                assert residuals.of(place, node) == expected
        draw.change()


def test_a_roster_is_kept_while_nothing_changes() -> None:
    draw = Draw(1)
    snapshot = draw.world.state.snapshot()
    roster = roster_after(None, snapshot, no_checkpoint)

    assert roster_after(roster, snapshot, no_checkpoint) is roster
    draw.world.pod("another", "n1")
    after = roster_after(roster, draw.world.state.snapshot(), no_checkpoint)

    assert len(after.uids) == len(roster.uids) + 1
    assert after.blocks[NodeName("n0")] is roster.blocks[NodeName("n0")]


def test_a_cluster_without_pods_and_nodes_is_observed() -> None:
    world = LoadWorld()
    for _ in range(2):
        sample = Sample(nodes={}, pods={"shop/gone": Usage(1.0, 1.0, START_S, 15.0)})
        world.tracker.observe(sample, world.state.snapshot(), START_S)
        world.node("n1")
    assert world.tracker.view(world.state.snapshot(), START_S).unknown == 1
