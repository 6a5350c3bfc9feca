# SPDX-License-Identifier: Apache-2.0
"""What protects a pod from a move protects it from being removed, as far as that makes sense.

The tables of the gates say what stands against a move; the lists below say which of it counts.
"""

from __future__ import annotations

import msgspec
import pytest

from common.cluster.records import PodRecord
from rebalancer.evictability import Context, judge_removal
from tests.support.worlds.evictability import EvictCase, load_cases

CASES = list(load_cases())
FOR_ALL = {
    "BarePod",
    "DaemonSetPod",
    "DoNotDisrupt",
    "ExcludedNamespace",
    "ExcludedPod",
    "MirrorPod",
    "NamespaceNotSelected",
    "NotSafeToEvict",
    "OwnPod",
    "OwnerWithoutControl",
    "PodNotSelected",
    "PreferNoEviction",
    "PriorityThreshold",
    "PriorityThresholdUnknown",
    "ReschedulingDisabled",
    "SystemPriority",
    "Terminating",
}
FOR_UNFINISHED = FOR_ALL | {
    "CustomOwner",
    "JobCountsDisruptions",
    "JobPod",
    "LocalStorage",
    "LocalVolume",
    "NoPdb",
    "OwnerDeleted",
    "OwnerLoop",
    "OwnerMismatch",
    "OwnerMissing",
    "PdbExhausted",
    "PdbUnsettled",
    "PodGroup",
    "PodGroupMinimum",
    "PodGroupUnknown",
    "PodGroupWhole",
    "ResourceClaims",
    "RolloutInProgress",
    "SchedulingGates",
    "SeveralPdbs",
    "TemporaryPdbGivesWay",
    "TooYoung",
}


def told(pod: PodRecord, context: Context) -> set[str]:
    return {refusal.name for refusal in judge_removal(pod, context)}


def expected(case: EvictCase, pod: PodRecord, known: set[str]) -> set[str]:
    # Nothing is copied here, so a bare pod stays whatever `barePods` says.
    bare = {"BarePod"} if pod.owner is None and not pod.owned else set()
    return known.intersection(case.words) | bare


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_pod_that_runs(case: EvictCase) -> None:
    world = case.world()
    pod, context = world.pod, world.context()
    found = told(pod, context)
    if not pod.finished:
        wanted = expected(case, pod, FOR_UNFINISHED)
        # No replica is added first, which would let a budget allow more.
        assert wanted <= found <= wanted | {"PdbExhausted"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_pod_that_has_ended(case: EvictCase) -> None:
    world = case.world()
    pod, context = world.pod, world.context()
    ended = msgspec.structs.replace(pod, phase="Failed")
    assert told(ended, context) == expected(case, pod, FOR_ALL)
