# SPDX-License-Identifier: Apache-2.0
"""Why the pods of a workload are moved, or are not. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from common.cluster.migrations import MigrationRecord
from common.cluster.records import OwnerUid, PodRecord
from common.cluster.workloads import WorkloadRecord
from console.data import Fact, Gate, WhyDocument, WhyKind
from rebalancer.inspection import words
from rebalancer.inspection.moment import Inspection
from rebalancer.inspection.moves import rows_of
from rebalancer.inspection.pods import against, gates_of
from rebalancer.refusals import Refusal


def why_workload(asked: Inspection, name: str) -> WhyDocument | None:
    """Return the answer about `namespace/name`; None if there is no such workload.

    A Deployment and the ReplicaSets of it are one workload; of a name, the topmost is asked about.
    """
    found = workload_named(asked, name)
    if found is None:
        return None
    pods = pods_of(asked, found)
    uids = {found.uid, *(pod.owner.uid for pod in pods if pod.owner is not None)}
    movable = [pod for pod in pods if asked.movable(pod) is not None]
    return WhyDocument(
        kind=WhyKind.WORKLOAD,
        name=found.key,
        answer=_answer(asked, found, pods, movable),
        good=bool(movable),
        facts=tuple(_facts(asked, found, pods)),
        gates=tuple(_gates(asked, pods)),
        changes=words.remedies(_refusals(asked, pods)),
        moves=rows_of(asked.migrations, lambda m: _is_of(m, found.namespace, uids)),
    )


def workload_named(asked: Inspection, name: str) -> WorkloadRecord | None:
    """Return the workload of a name that nothing else owns, or else any of that name."""
    known = asked.snapshot.workloads.values()
    found = sorted((w for w in known if w.key == name), key=lambda w: (w.kind, w.uid))
    tops = [w for w in found if w.owner is None]
    return next(iter([*tops, *found]), None)


def pods_of(asked: Inspection, workload: WorkloadRecord) -> list[PodRecord]:
    """Return the pods of a workload, by name."""
    snapshot = asked.snapshot
    in_namespace = snapshot.by_namespace[workload.namespace].values()
    mine = [p for p in in_namespace if _owns(asked, workload, p)]
    return sorted(mine, key=lambda pod: pod.name)


def _owns(asked: Inspection, workload: WorkloadRecord, pod: PodRecord) -> bool:
    if pod.owner is None:
        return False
    top = asked.snapshot.top_workload(pod)
    return pod.owner.uid == workload.uid or (top is not None and top.uid == workload.uid)


def _is_of(migration: MigrationRecord, namespace: str, uids: set[OwnerUid]) -> bool:
    inside = migration.namespace == namespace
    return inside and (migration.workload_uid in uids or migration.controller_uid in uids)


def _answer(
    asked: Inspection,
    workload: WorkloadRecord,
    pods: Sequence[PodRecord],
    movable: Sequence[PodRecord],
) -> str:
    name = f"{workload.kind} {workload.key}"
    if not pods:
        return f"{name} has no pods."
    moving = sum(pod.uid in asked.moves for pod in pods)
    planned = f", and the plan moves {moving} of them" if moving else ""
    if movable:
        return f"{len(movable)} of {words.counted(len(pods), 'pod')} may be moved{planned}."
    refused = Counter(found[0] for pod in pods if (found := against(asked, pod)))
    why = refused.most_common(1)[0][0].message if refused else "the planner cannot judge them"
    return f"None of its {words.counted(len(pods), 'pod')} may be moved: {why}."


def _facts(
    asked: Inspection, workload: WorkloadRecord, pods: Sequence[PodRecord]
) -> Iterator[Fact]:
    yield Fact(label="Kind", text=workload.kind)
    counts = f"{workload.desired} wanted, {workload.ready} ready, {workload.available} available"
    yield Fact(label="Replicas", text=counts)
    for pod in pods:
        load, move = asked.load.load_of(pod), asked.moves.get(pod.uid)
        goes = f", goes to {move.target}" if move is not None else ""
        found = against(asked, pod)
        stays = f", stays: {found[0].message}" if found else ""
        used = words.amounts(load.cpu_milli, load.mem_bytes)
        yield Fact(
            label=pod.name,
            text=f"on {pod.node or 'no node'}, {used}{goes}{stays}",
            kind=WhyKind.POD,
            name=pod.key,
        )


def _gates(asked: Inspection, pods: Sequence[PodRecord]) -> Iterator[Gate]:
    """Yield every gate once: passed if all pods pass it, else with how many do not."""
    failed: dict[str, list[Gate]] = {}
    passed: dict[str, Gate] = {}
    for pod in pods:
        for gate in gates_of(asked, pod):
            if gate.passed:
                passed.setdefault(gate.name, gate)
            else:
                failed.setdefault(gate.name, []).append(gate)
    for name, found in failed.items():
        text = f"{len(found)} of {words.counted(len(pods), 'pod')}: {found[0].words}"
        yield Gate(name=name, passed=False, words=text, for_good=found[0].for_good)
    yield from passed.values()


def _refusals(asked: Inspection, pods: Sequence[PodRecord]) -> Iterator[Refusal]:
    for pod in pods:
        yield from against(asked, pod)
