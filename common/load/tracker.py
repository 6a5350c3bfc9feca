# SPDX-License-Identifier: Apache-2.0
"""The load tracker: takes samples in and returns the load that is believed now.

Usage is measured and late; load is what we believe now. The tracker is pure: it is given the
time, and the same samples and snapshots always lead to the same belief. A sample costs one
pass over all pods, in columns (`roster`, `pod_samples`, `histories`), and one over all nodes.
A view costs what changed since the last one: a node is judged again
only when its view is another object, when it or one of its pods has a new sample, when
estimates in it rest on older knowledge, or when time has made one of its samples stale.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Final

from common.cache.snapshot import NodeView, Snapshot
from common.checkpoint import Checkpoint, no_checkpoint
from common.cluster.records import NodeName, PodUid
from common.config import LoadSettings
from common.load.aggregation import Past
from common.load.estimates import Estimator
from common.load.freshness import Freshness, Limits
from common.load.histories import Histories, followed, no_histories
from common.load.node_tracker import Departure, NodeTracker, moved_lately
from common.load.pod_samples import PodSamples
from common.load.roster import Roster, find_rows, roster_after
from common.load.values import FurtherLoad, Load
from common.load.view import Judgement, LoadView, judge_measured, judge_requested
from common.usage.columns import UsageColumns
from common.usage.source import NO_PRESSURE, FurtherSample, Sample

NO_PREDECESSORS: Final[Mapping[PodUid, Load]] = MappingProxyType({})


class LoadTracker:
    """Everything that is remembered about usage."""

    def __init__(
        self, settings: LoadSettings | None = None, *, from_requests: bool = False
    ) -> None:
        self._settings = settings or LoadSettings()
        self._from_requests = from_requests
        self._history = no_histories()
        self._roster: Roster | None = None
        self._trackers: dict[NodeName, NodeTracker] = {}
        self._past = _past(self._settings)
        self._judgements: dict[NodeName, Judgement] = {}
        self._estimator = Estimator(self._settings, self._history, NO_PREDECESSORS)
        self._last: LoadView | None = None
        self._further = (FurtherSample(),) * len(self._settings.further_resources)
        self._updated_s = -inf
        """When the pods of all nodes were last compared."""

    def observe(
        self,
        sample: Sample,
        snapshot: Snapshot,
        now_s: float,
        checkpoint: Checkpoint = no_checkpoint,
    ) -> None:
        """Learn from a sample; what it says about pods that are gone is dropped.

        `checkpoint` is called between nodes, and may pause for more urgent work.
        """
        if self._from_requests:
            return
        latest_s = now_s + self._settings.clock_skew
        roster = roster_after(self._roster, snapshot, checkpoint)
        limits = [Limits(view.node, latest_s) for view in snapshot.nodes.values()]
        samples = PodSamples(UsageColumns.of(sample.pods), roster, limits, checkpoint)
        history, fresh = self._followed(samples, roster, latest_s, now_s, checkpoint)
        residuals = samples.residuals(sample.nodes)
        trackers: dict[NodeName, NodeTracker] = {}
        measured: list[bool] = []
        moved: Mapping[NodeName, Sequence[Departure]] | None = None
        self._further = sample.further or (FurtherSample(),) * len(self._further)
        expiry_s = self._settings.metric_expiry.seconds
        for place, (name, view) in enumerate(snapshot.nodes.items()):
            checkpoint()
            tracker = self._tracker(view, latest_s)
            if tracker is None:
                moved = moved_lately(snapshot, now_s) if moved is None else moved
                tracker = NodeTracker(view.node.uid, view.pods, now_s, moved.get(name, ()))
            trackers[name] = tracker
            self._update_pods(view, tracker, now_s)
            usage = sample.nodes.get(name)
            waits = sample.pressures.get(name, NO_PRESSURE)
            further = tuple([_further(each, name) for each in self._further])
            other = tracker.take_pressure(waits, now_s, expiry_s) or further != tracker.further
            tracker.further = further
            residual = partial(residuals.of, place)
            news = usage is not None and tracker.take(usage, limits[place], residual)
            measured.append(news)
            if news or fresh[place] or other:
                self._judgements.pop(name, None)
        self._remember(trackers.values(), measured, now_s)
        self._trackers = trackers
        self._history = history
        self._roster = roster
        self._updated_s = now_s
        self._estimator = Estimator(self._settings, history, self._estimator.predecessors)

    def view(
        self,
        snapshot: Snapshot,
        now_s: float,
        predecessors: Mapping[PodUid, Load] = NO_PREDECESSORS,
        checkpoint: Checkpoint = no_checkpoint,
    ) -> LoadView:
        """Return what is believed now; `predecessors` says what replaced pods really used."""
        if predecessors != self._estimator.predecessors:
            self._estimator = Estimator(self._settings, self._history, dict(predecessors))
        if self._last is None or not self._last.holds(snapshot, self._estimator, now_s):
            self._last = LoadView(
                snapshot,
                self._estimator,
                self._judge_all(snapshot, now_s, checkpoint),
                now_s=now_s,
                settings=self._settings,
                from_requests=self._from_requests,
                further=self._further,
            )
        self._updated_s = now_s
        return self._last

    def _judge_all(
        self, snapshot: Snapshot, now_s: float, checkpoint: Checkpoint
    ) -> Mapping[NodeName, Judgement]:
        old, estimator = self._judgements, self._estimator
        judgements: dict[NodeName, Judgement] = {}
        for name, view in snapshot.nodes.items():
            found = old.get(name)
            if found is None or not found.holds(view, estimator, now_s):
                checkpoint()
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
            self._update_pods(view, tracker, now_s)
        return judge_measured(view, tracker, snapshot, self._estimator, freshness, self._past)

    def _update_pods(self, view: NodeView, tracker: NodeTracker, now_s: float) -> None:
        tracker.update_pods(view.pods, self._history, seen_s=self._updated_s, now_s=now_s)

    def _tracker(self, view: NodeView, latest_s: float) -> NodeTracker | None:
        """Return the memory of this node; a new object of the same name has none.

        Neither has one that was last measured in what is now the future: our clock was set
        back, and every sample would look old until time has caught up.
        """
        found = self._trackers.get(view.node.name)
        if found is None or found.uid != view.node.uid or (found.end_s or 0.0) > latest_s:
            return None
        return found

    def _followed(
        self,
        samples: PodSamples,
        roster: Roster,
        latest_s: float,
        now_s: float,
        checkpoint: Checkpoint,
    ) -> tuple[Histories, Sequence[bool]]:
        """Return the pods' histories with what is new, and which nodes have such pods."""
        index = self._history.rows_of(roster)
        rows = None if index is None else find_rows(index, roster.uids, checkpoint)
        before = self._history.before(rows, latest_s)
        smoothing_s = self._settings.smoothing.seconds
        history, news = followed(before, samples.measured(), roster, smoothing_s)
        if self._past is not None:
            self._past.take_pods(rows, roster, news, history.newest(), now_s)
        return history, roster.any_on_node(news)

    def _remember(
        self, trackers: Collection[NodeTracker], measured: Sequence[bool], now_s: float
    ) -> None:
        """Keep what pods do not explain of the nodes' samples, for figures over a while."""
        if self._past is None:
            return
        usages = (each.usage for each in trackers)
        self._past.take_nodes(
            [each.uid for each in trackers],
            measured,
            [each.residual for each in trackers],
            [None if each is None else Load(each.cpu_milli, each.mem_bytes) for each in usages],
            now_s,
        )


def _past(settings: LoadSettings) -> Past | None:
    """Return where the past of pods is kept; None if no figure reaches back."""
    wanted = settings.load.aggregation
    return None if wanted.ceilings.is_last and wanted.targets.is_last else Past(wanted)


def _further(sample: FurtherSample, name: NodeName) -> FurtherLoad:
    return FurtherLoad(sample.nodes.get(name), sample.offered.get(name))
