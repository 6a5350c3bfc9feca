# SPDX-License-Identifier: Apache-2.0
"""Compares our verdicts with those of kube-scheduler, and says what the comparison covered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from common.api.objects import Pod
from common.cluster.records import NodeName, PodRecord
from common.fit import FitIndex, Leave, Question, Rejection, World
from common.fit.cases import Case, candidate_of, snapshot_of
from tests.support.oracles.fit import REFUSAL, Judgement
from tests.support.oracles.fit_message import no_fit

FAMILIES = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
)
"""What can be compared: resource claims are refused without being judged."""

# Affinity that names its nodes is a family of its own, though one plugin does both.
_BY_NAME = {"NodeNotNamed", "NamesConflict"}


@dataclass(frozen=True)
class Opinion:
    """What we and kube-scheduler think of one pod."""

    question: Question
    judgement: Judgement
    ours: frozenset[str]

    @property
    def agree(self) -> bool:
        return self.ours == self.judgement.feasible and self.message == self.judgement.message

    @property
    def message(self) -> str:
        """What we would tell people of the pod."""
        return no_fit(self.question, dict.fromkeys(map(NodeName, self.ours), REFUSAL))

    @property
    def name(self) -> str:
        return self.question.pod.name

    def line(self) -> str:
        """Return the case as one line for `python -m common.fit`."""
        return json.dumps({**self.judgement.seen, "pod": self.judgement.pod})


def opinions(judgements: list[Judgement]) -> Iterator[Opinion]:
    """Judge what kube-scheduler has judged; all in the same cluster."""
    seen = {**judgements[0].seen, "pod": {"metadata": {"name": "nobody"}}}
    world = World(snapshot_of(msgspec.convert(seen, Case)), FitIndex())
    for judgement in judgements:
        question = world.ask(candidate_of(msgspec.convert(judgement.pod, Pod)))
        yield Opinion(question, judgement, frozenset(map(str, question.feasible())))


@dataclass
class Figures:
    """What the comparison covered."""

    cases: int = 0
    partial: int = 0
    asked_again: int = 0
    by_nominated: int = 0
    by_terminating: int = 0
    sole: Counter[str] = field(default_factory=Counter)

    def count(self, opinion: Opinion) -> None:
        """Count what a case is about on which both agree."""
        world, ours = opinion.question.world, opinion.ours
        self.cases += 1
        self.partial += 0 < len(ours) < len(world.snapshot.nodes)
        for name in set(world.snapshot.nodes) - ours:
            families = set(map(_family, opinion.question.rejections(name)))
            if len(families) == 1:
                self.sole.update(families)
        pods = world.snapshot.pods.values()
        self.by_nominated += _differs(opinion, (p for p in pods if p.nominated_node))
        self.by_terminating += _differs(opinion, (p for p in pods if p.terminating))

    @property
    def share_partial(self) -> float:
        return self.partial / max(self.cases, 1)

    def __str__(self) -> str:
        alone = ", ".join(f"{family} {self.sole[family]}" for family in FAMILIES)
        return (
            f"{self.cases} cases agree, {100 * self.share_partial:.0f} % of them with some but "
            f"not all nodes feasible; {self.asked_again} were asked again\n"
            f"nominated pods decided {self.by_nominated} cases, terminating pods "
            f"{self.by_terminating}\nrefusals with a single cause: {alone}"
        )


def _family(rejection: Rejection) -> str:
    return "NodeName" if rejection.name in _BY_NAME else rejection.plugin


def _differs(opinion: Opinion, gone: Iterable[PodRecord]) -> bool:
    """Tell whether the verdict would be another one without these pods."""
    question = opinion.question
    without = question.world.after(*(Leave(pod.uid) for pod in gone))
    return frozenset(map(str, without.feasible(question.pod))) != opinion.ours
