"""The load book: takes samples in, says what is believed now.

Usage is measured and late; load is what we believe now. The book is pure: it is told the
time, and the same samples and snapshots always lead to the same belief. A sample costs one
pass over all pods. A view costs what changed since the last one: a node is judged anew
only when its view is another object, when it or one of its pods has a new sample, when
estimates in it rest on older knowledge, or when time has made one of its samples stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final

from common.breathing import Breathe, go_on
from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.snapshot import NodeView, Snapshot
from common.load.estimates import Estimator
from common.load.freshness import Freshness, Limits, covers
from common.load.settings import LoadSettings
from common.load.tracker import Departure, NodeTracker, moved_lately
from common.load.values import Load
from common.load.view import Judgement, LoadView, judge_measured, judge_requested
from common.usage.history import PodHistory, first, follow
from common.usage.source import Sample, Usage

NO_PREDECESSORS: Final[Mapping[PodUid, Load]] = MappingProxyType({})


class LoadBook:
    """Everything that is remembered about usage."""

    def __init__(
        self, settings: LoadSettings | None = None, *, from_requests: bool = False
    ) -> None:
        self._settings = settings or LoadSettings()
        self._from_requests = from_requests
        self._history: dict[PodUid, PodHistory] = {}
        self._trackers: dict[NodeName, NodeTracker] = {}
        self._judgements: dict[NodeName, Judgement] = {}
        self._estimator = Estimator(self._settings, self._history, NO_PREDECESSORS)
        self._last: LoadView | None = None
        self._looked_s = -inf
        """When all nodes were looked at last."""

    def observe(
        self,
        sample: Sample,
        snapshot: Snapshot,
        now_s: float,
        breathe: Breathe = go_on,
    ) -> None:
        """Learn from a sample; what it says about pods that are gone is dropped.

        `breathe` is called between nodes: whoever does this beside more urgent work may
        pause there.
        """
        if self._from_requests:
            return
        latest_s = now_s + self._settings.clock_skew_s
        history: dict[PodUid, PodHistory] = {}
        trackers: dict[NodeName, NodeTracker] = {}
        moved: Mapping[NodeName, Sequence[Departure]] | None = None
        for name, view in snapshot.nodes.items():
            breathe()
            tracker = self._tracker(view, latest_s)
            if tracker is None:
                moved = moved_lately(snapshot, now_s) if moved is None else moved
                tracker = NodeTracker(view.node.uid, view.pods, now_s, moved.get(name, ()))
            trackers[name] = tracker
            limits = Limits(view.node, latest_s)
            usages = _possible(view.pods.values(), sample.pods, limits)
            self._look_at(view, tracker, now_s)
            usage = sample.nodes.get(name)
            news = usage is not None and tracker.take(usage, limits, usages)
            news = self._follow(view.pods, usages, history, latest_s) or news
            if news:
                self._judgements.pop(name, None)
        self._trackers = trackers
        self._history = history
        self._looked_s = now_s
        self._estimator = Estimator(self._settings, history, self._estimator.predecessors)

    def view(
        self,
        snapshot: Snapshot,
        now_s: float,
        predecessors: Mapping[PodUid, Load] = NO_PREDECESSORS,
        breathe: Breathe = go_on,
    ) -> LoadView:
        """Return what is believed now; `predecessors` says what replaced pods really used."""
        if predecessors != self._estimator.predecessors:
            self._estimator = Estimator(self._settings, self._history, dict(predecessors))
        if self._last is None or not self._last.holds(snapshot, self._estimator, now_s):
            self._last = LoadView(
                snapshot,
                self._estimator,
                self._judge_all(snapshot, now_s, breathe),
                now_s=now_s,
                settings=self._settings,
                from_requests=self._from_requests,
            )
        self._looked_s = now_s
        return self._last

    def _judge_all(
        self, snapshot: Snapshot, now_s: float, breathe: Breathe
    ) -> Mapping[NodeName, Judgement]:
        old, estimator = self._judgements, self._estimator
        judgements: dict[NodeName, Judgement] = {}
        for name, view in snapshot.nodes.items():
            found = old.get(name)
            if found is None or not found.holds(view, estimator, now_s):
                breathe()
                found = self._judge(name, view, snapshot, now_s)
            judgements[name] = found
        self._judgements = judgements
        return self._judgements

    def _judge(self, name: NodeName, view: NodeView, snapshot: Snapshot, now_s: float) -> Judgement:
        freshness = Freshness(now_s, self._settings)
        if self._from_requests:
            return judge_requested(view, freshness)
        tracker = self._trackers.get(name)
        if tracker is not None and tracker.uid != view.node.uid:
            tracker = None
        if tracker is not None:
            self._look_at(view, tracker, now_s)
        return judge_measured(view, tracker, snapshot, self._estimator, freshness)

    def _look_at(self, view: NodeView, tracker: NodeTracker, now_s: float) -> None:
        tracker.look_at(view.pods, self._history, seen_s=self._looked_s, now_s=now_s)

    def _tracker(self, view: NodeView, latest_s: float) -> NodeTracker | None:
        """Return the memory of this node; a new object of the same name has none.

        Neither has one that was last measured in what is now the future: our clock was set
        back, and every sample would look old until time has caught up.
        """
        found = self._trackers.get(view.node.name)
        if found is None or found.uid != view.node.uid or (found.end_s or 0.0) > latest_s:
            return None
        return found

    def _follow(
        self,
        pods: Mapping[PodUid, PodRecord],
        usages: Sequence[Usage | None],
        history: dict[PodUid, PodHistory],
        latest_s: float,
    ) -> bool:
        """Carry the pods' histories over, with what is new; tell whether anything is."""
        before, settings, news = self._history, self._settings, False
        for (uid, pod), usage in zip(pods.items(), usages, strict=True):
            page = before.get(uid)
            if page is not None and page.end_s > latest_s:
                page = None  # our clock was set back; see _tracker
            if usage is not None and covers(usage, pod):
                if page is None:
                    page, news = first(usage), True
                elif usage.end_s > page.end_s:
                    page, news = follow(page, usage, settings.smoothing_s), True
            if page is not None:
                history[uid] = page
        return news


def _possible(
    pods: Iterable[PodRecord], measured: Mapping[str, Usage], limits: Limits
) -> list[Usage | None]:
    """Return each pod's sample; None where there is none, or one that cannot be measured."""
    get, refuse = measured.get, limits.refuse
    return [
        usage if (usage := get(pod.key)) is not None and refuse(usage) is None else None
        for pod in pods
    ]
