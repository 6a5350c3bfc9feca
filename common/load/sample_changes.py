# SPDX-License-Identifier: Apache-2.0
"""By which pods a node's load differs from its newest sample.

Three kinds of pods make a difference, and nothing else does:

- *Arriving*: the sample's window began before the pod. What the window does not contain of it
  is added, otherwise ten pods in a row land on the same "idle" node.
- *Left*: the pod has gone, and the window reaches back to when it was there. That part is taken
  off, otherwise a relieved node looks hot and is relieved again.
- *Leaving*: a terminating pod that the sample contains. It still uses the node, so it counts
  for room, scores and alerts. For goals it has left: how long it drains must not matter.

A pod that began or left in the middle of a window is contained in part. The sample itself
tells in which part, where the node's overhead and all other pods are known: it is what they
do not explain. Elsewhere the time that the pod was there tells it. Memory is a gauge, read at
the end of the window: a pod is in it or is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import fsum, inf
from typing import Final, NamedTuple

from common.cache.snapshot import NodeView
from common.cluster.records import PodRecord, PodUid
from common.load.freshness import STAMP_PRECISION_S, Freshness, began_before, began_s
from common.load.node_tracker import Departure, NodeTracker
from common.load.overhead import LAG_S
from common.load.values import Basis, Change, Difference, Load, PodLoad
from common.usage.history import PodHistory
from common.usage.source import Usage

STOPPING_S: Final = 60.0
"""How long after its deletionTimestamp, which includes the grace period, a pod may linger and
still count as leaving. Kubelets kill at that moment and take a while to report it; a pod that
is there longer stays."""

LEAST_SEEN: Final = 0.25
"""How much of a window must contain a new pod for the sample to tell what the pod uses."""


class PodLoads(NamedTuple):
    """What is known about pods."""

    of: Callable[[PodRecord], PodLoad]
    history: Mapping[PodUid, PodHistory]
    freshness: Freshness


class Changes(NamedTuple):
    """What became of a sample."""

    now: Load
    leaving: Load
    differences: tuple[Difference, ...]


class _Part(NamedTuple):
    """A pod that a window contains in part, in full or not at all."""

    key: str
    uid: PodUid
    change: Change
    load: PodLoad
    seen: float
    """The part of the window in which it was there, from 0 to 1."""
    mem_seen: bool
    """Whether it was there at the end of the window, when memory is read."""
    dated: bool = False
    """Whether it is known since when it runs, or when it left."""

    @property
    def partly(self) -> bool:
        return 0.0 < self.seen < 1.0


def changes_since(usage: Usage, view: NodeView, tracker: NodeTracker, loads: PodLoads) -> Changes:
    """Return a node's load now, and by which pods it differs from the sample."""
    arriving: list[_Part] = []
    terminating: list[tuple[PodRecord, PodLoad]] = []
    start_s = usage.start_s
    # On nearly all nodes, all pods are contained, and their samples need not be looked at.
    settled = tracker.has_old_pods_only(view.pods, start_s)
    for pod in () if settled else view.pods.values():
        began = began_before(pod, start_s)
        if began and pod.deleted_s is None:
            continue
        load = loads.of(pod)
        if load.basis is Basis.NOTHING:
            continue
        if not began:
            arriving.append(_arriving(pod, load, usage))
        if leaves(pod, loads.freshness):
            terminating.append((pod, load))
    left = [_left(departure, usage) for departure in tracker.departed.values()]
    arriving = _bounded(arriving, view)
    if not (arriving or terminating or left):
        return Changes(Load(usage.cpu_milli, usage.mem_bytes), Load(0.0, 0.0), ())
    explain = partial(_explained, view, tracker, usage, loads)
    arriving, seen_milli = _seen(usage, arriving, left, explain)
    found = [_difference(part, seen_milli[part.uid]) for part in (*arriving, *left)]
    return _summed(usage, found, _leaving(terminating, arriving, usage, loads.history))


def leaves(pod: PodRecord, freshness: Freshness) -> bool:
    """Tell whether a pod is terminating, and in time."""
    if pod.deleted_s is None or pod.finished:
        return False
    until_s = pod.deleted_s + STOPPING_S
    if freshness.now_s > until_s:
        return False
    freshness.narrow(-inf, until_s)
    return True


def _arriving(pod: PodRecord, load: PodLoad, usage: Usage) -> _Part:
    since_s = began_s(pod)
    # A container takes a moment to start after its pod is scheduled; stamps are cut to seconds.
    known = pod.started_s is not None
    there_s = usage.end_s - since_s - (0.0 if known else STAMP_PRECISION_S)
    seen = min(1.0, max(0.0, there_s / usage.window_s)) if usage.window_s > 0.0 else 0.0
    return _Part(pod.key, pod.uid, Change.ARRIVING, load, seen, since_s < usage.end_s, known)


def _left(departure: Departure, usage: Usage) -> _Part:
    """Return a pod that has gone; `tracker` has dropped those of before the window."""
    load = PodLoad(departure.cpu_milli, departure.mem_bytes, Basis.MEASURED)
    gone_s = (departure.seen_s + departure.left_s) / 2.0
    seen = 1.0
    if usage.end_s > departure.seen_s and usage.window_s > 0.0:
        seen = min(1.0, max(0.0, (gone_s - usage.start_s) / usage.window_s))
    there = usage.end_s <= gone_s
    dated = departure.left_s - departure.seen_s <= LEAST_SEEN * usage.window_s
    return _Part(departure.key, departure.uid, Change.LEFT, load, seen, there, dated)


def _leaving(
    terminating: Sequence[tuple[PodRecord, PodLoad]],
    arriving: Sequence[_Part],
    usage: Usage,
    history: Mapping[PodUid, PodHistory],
) -> list[tuple[PodRecord, PodLoad]]:
    """Return what terminating pods take with them: of a new one no more than was added."""
    added = {part.uid: part.load for part in arriving}
    found = []
    for pod, load in terminating:
        new = added.get(pod.uid)
        page, runs = history.get(pod.uid), bool(pod.running_containers)
        share = _share(new or load, usage, page, began=new is None, runs=runs)
        found += [(pod, share)] if share is not None else []
    return found


def _share(
    load: PodLoad, usage: Usage, page: PodHistory | None, *, began: bool, runs: bool
) -> PodLoad | None:
    """Return what a terminating pod uses; None where the sample may be without it.

    One that runs, as its kubelet says, is in the sample although pods are not measured just now.
    """
    if load.basis is not Basis.MEASURED or page is None:
        # Contained and never measured: nothing tells how much of the sample is its.
        return None if began else load
    if page.end_s < usage.start_s - LAG_S and not runs:
        return None  # it is no longer measured: its processes have ended
    # A pod that no longer serves uses less than its average.
    cpu_milli = min(load.cpu_milli, page.cpu_last_milli)
    return PodLoad(cpu_milli, min(load.mem_bytes, page.mem_last_bytes), Basis.MEASURED)


def _bounded(arriving: list[_Part], view: NodeView) -> list[_Part]:
    """Bound new pods together by what the node has: more cannot be used, whatever they ask for."""
    offered = view.node.allocatable
    cpu = _scale(offered.cpu_milli, fsum(part.load.cpu_milli for part in arriving))
    mem = _scale(offered.mem_bytes, fsum(part.load.mem_bytes for part in arriving))
    if cpu == mem == 1.0:
        return arriving
    return [_scaled(part, cpu, mem) for part in arriving]


def _scale(most: float, total: float) -> float:
    return most / total if total > most > 0 else 1.0


def _scaled(part: _Part, cpu: float, mem: float = 1.0) -> _Part:
    load = part.load
    return part._replace(load=PodLoad(load.cpu_milli * cpu, load.mem_bytes * mem, load.basis))


def _explained(view: NodeView, tracker: NodeTracker, usage: Usage, loads: PodLoads) -> float | None:
    """Return the CPU that overhead and pods account for that were there all the time.

    None where that is not known: no overhead was learned, or one of these pods was not
    measured.
    """
    overhead = tracker.overhead.value
    if overhead is None:
        return None
    found = [overhead.cpu_milli]
    for pod in view.pods.values():
        if not began_before(pod, usage.start_s):
            continue
        load = loads.of(pod)
        if load.basis not in (Basis.MEASURED, Basis.NOTHING):
            return None
        found.append(load.cpu_milli)
    return fsum(found)


def _seen(
    usage: Usage,
    arriving: list[_Part],
    left: Sequence[_Part],
    explain: Callable[[], float | None],
) -> tuple[list[_Part], dict[PodUid, float]]:
    """Return how much CPU of each pod the sample contains, and the new pods as it shows them.

    `explain` looks at all pods of the node, and is asked only where a pod is contained in part.
    """
    by_time = {part.uid: part.load.cpu_milli * part.seen for part in (*arriving, *left)}
    partly = [part for part in (*arriving, *left) if part.partly]
    explained = explain() if partly else None
    if explained is None:
        return arriving, by_time
    whole = fsum(by_time[part.uid] for part in left if not part.partly)
    rest = max(0.0, usage.cpu_milli - explained - whole)
    new = [part for part in arriving if part.partly]
    gone = [part for part in left if part.partly]
    if new and _tells(new) and all(part.dated for part in gone):
        # What left was measured, so its time there tells its part; the rest is of the new ones.
        rest = max(0.0, rest - fsum(by_time[part.uid] for part in gone))
        expected = fsum(by_time[part.uid] for part in new)
        scale = min(1.0, rest / expected) if expected > 0.0 else 1.0
        arriving = [_scaled(part, scale) if part.partly else part for part in arriving]
        partly = [part for part in arriving if part.partly]
    total = fsum(part.load.cpu_milli for part in partly)
    share = min(1.0, rest / total) if total > 0.0 else 0.0
    return arriving, by_time | {p.uid: share * p.load.cpu_milli for p in partly}


def _tells(partly: Iterable[_Part]) -> bool:
    """Tell whether a sample knows better than the specs what its new pods use.

    It must contain enough of them, and it must be known since when they run.
    """
    return all(
        part.load.basis is Basis.SPEC and part.dated and part.seen >= LEAST_SEEN for part in partly
    )


def _difference(part: _Part, seen_milli: float) -> Difference:
    load = part.load
    if part.change is Change.ARRIVING:
        cpu_milli = load.cpu_milli - seen_milli
        mem_bytes = 0.0 if part.mem_seen else load.mem_bytes
    else:
        cpu_milli = -seen_milli
        mem_bytes = -load.mem_bytes if part.mem_seen else 0.0
    return Difference(part.key, part.uid, part.change, cpu_milli, mem_bytes, part.load.basis)


def _summed(
    usage: Usage, found: list[Difference], leaving: list[tuple[PodRecord, PodLoad]]
) -> Changes:
    cpu_milli = max(0.0, usage.cpu_milli + fsum(each.cpu_milli for each in found))
    mem_bytes = max(0.0, usage.mem_bytes + fsum(each.mem_bytes for each in found))
    for pod, load in leaving:
        cpu, mem = -load.cpu_milli, -load.mem_bytes
        found.append(Difference(pod.key, pod.uid, Change.LEAVING, cpu, mem, load.basis))
    going = Load(
        min(cpu_milli, fsum(load.cpu_milli for _, load in leaving)),
        min(mem_bytes, fsum(load.mem_bytes for _, load in leaving)),
    )
    return Changes(Load(cpu_milli, mem_bytes), going, tuple(found))
