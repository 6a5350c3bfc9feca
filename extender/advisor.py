# SPDX-License-Identifier: Apache-2.0
"""The policy of the extender: decides from what is known at the moment of the request.

Three sources are combined: the board, which a thread rebuilds whenever the belief about the
cluster has changed; what the board cannot contain yet (placements that were answered but not
observed, room that is reserved for moved pods), as an overlay; and what must be current to
the event: which nodes are under maintenance or kept empty, and where pods were bound. The last
two come from listeners of the watch cache, not from the board.

Load and intents never reject a whole list. Before the cluster is known no node is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from functools import partial
from typing import Final

from common.api.contract import kept_empty, under_maintenance
from common.cache.state import ClusterState
from common.clock import Clock
from common.cluster.records import NodeName, NodeRecord, PodRecord, PodUid
from common.config import ExtenderConfiguration, Overloaded
from common.load import Basis, Load, PodLoad
from common.metrics import Metrics
from extender import rules
from extender.assumed import AssumedPlacements
from extender.debug import NodeRow, explain
from extender.intents import Guidance, Held, Intents
from extender.neutral import NeutralAnswers, all_candidates, equal_scores, keep_all
from extender.node_event_wait import NodeEventWait
from extender.protocol import FilterResult, RequestPod, Scores, Victims
from extender.scoring import BEST, Board, Demand, Overlay, likeliest
from extender.scoring.name_index import parted
from extender.shortlist import Shortlists

_NO_LOAD: Final = PodLoad(0.0, 0.0, Basis.SPEC)


class Advisor:
    """Implements `Policy`; used on the event loop only."""

    def __init__(
        self,
        state: ClusterState,
        intents: Intents,
        *,
        config: ExtenderConfiguration,
        clock: Clock,
        metrics: Metrics,
        ready: Callable[[], bool],
    ) -> None:
        self.config: Final = config
        self._state = state
        self._intents = intents
        self._clock = clock
        self._ready = ready
        self._expiry_s = config.metric_expiry.seconds
        self._confirmed_s = clock.monotonic()
        self._filters_overloaded = config.overloaded is Overloaded.FILTER
        self._default_pod = Demand(
            cpu_milli=config.estimates.cpu_milli, mem_bytes=config.estimates.mem_bytes
        )
        self._overlay: Overlay | None = None
        self._held: Mapping[NodeName, Held] = {}
        self._held_for: Mapping[PodUid, NodeName] = {}
        self._free: dict[NodeName, Load] = {}
        """What can still be requested on nodes with reserved room."""
        self._assumed = AssumedPlacements(metrics, self._on_charge)
        self._node_events = NodeEventWait(clock, metrics)
        self._neutral = NeutralAnswers(metrics, clock)
        self._shortlists = Shortlists(state, config, metrics, clock)
        self._maintenance = {
            name
            for name in state.nodes.records
            if (node := state.nodes.records.get(name)) is not None
            and under_maintenance(node.labels)
        }
        self._kept_empty = {
            name
            for name in state.nodes.records
            if (node := state.nodes.records.get(name)) is not None and kept_empty(node.annotations)
        }
        state.nodes.listen(self._on_node)
        state.pods.listen(self._on_pod)

    @property
    def board(self) -> Board | None:
        """The board that answers are made from; None before the first one."""
        return None if self._overlay is None else self._overlay.board

    def use(self, board: Board) -> None:
        """Answer from this board from now on."""
        self.confirm()
        self._overlay = None  # so that no node is updated twice
        self._assumed.settle(board.version)
        self._overlay = Overlay(board)
        for node in {*self._assumed.nodes(), *self._held}:
            self._update_node(node)

    def confirm(self) -> None:
        """Record that the board still matches the belief."""
        self._confirmed_s = self._clock.monotonic()

    @property
    def outdated(self) -> bool:
        """Whether the board is so old that load must not decide any more."""
        return self._clock.monotonic() - self._confirmed_s > self._expiry_s

    async def filter(self, pod: RequestPod, names: Sequence[str]) -> FilterResult:
        """Reject nodes under maintenance, then follow intents and reservations (`rules`).

        What is left may be shortened to the nodes that are worth scoring.
        """
        first = self._shortlists.begin(pod, names)
        if not self._ready():
            self._neutral.count("filter", "cold")
            return keep_all(names)
        self._drop_assumption(pod)
        decide = partial(self._without_maintenance, pod.record, names)
        found = await self._node_events.before_rejecting_all(decide)
        if not found.keep:
            return found
        guidance = self._intents.assign_slot(pod.record, found.keep)
        found = self._apply_rules(pod, found, guidance)
        if len(found.keep) > 1:
            found = self._shortened(pod, found, guidance, first=first)
        if len(found.keep) == 1:
            self._assume(pod, found.keep[0], self._demand(pod, guidance))
        elif self._overlay is not None:
            self._overlay.expect(found.keep)
        return found

    def prioritize(self, pod: RequestPod, names: Sequence[str]) -> Scores:
        """Score nodes by their predicted use; a planned node gets the best score."""
        overlay = self._overlay
        if not names:
            return Scores(())
        if overlay is None or not self._ready():
            self._neutral.count("prioritize", "cold")
            return equal_scores(names)
        self._drop_assumption(pod)
        guidance = self._intents.assign_slot(pod.record, names)
        self._refresh_held()
        demand = self._demand(pod, guidance)
        target = None if guidance is None else guidance.target
        best: str | None = target
        if overlay.board.resting or self.outdated:
            self._neutral.count("prioritize", "resting")
            scores = equal_scores(names)
        else:
            found = overlay.scores(names, demand, self._shortlists.middle(pod.uid))
            scores = Scores(found.tolist(), overlay.encode(names, found))
            best = best or names[likeliest(found, pod.uid)]
        if self._kept_empty:
            scores = _lowest(self._kept_empty, names, scores)
        if best is not None:
            self._assume(pod, best, demand)
        return scores if target is None else _preferring(target, names, scores)

    def preempt(self, pod: RequestPod, candidates: Mapping[str, Victims]) -> Collection[str]:
        """Drop candidates that the filter would reject, so that no pod is deleted for them.

        A pod that was answered with a shortlist preempts nothing: a free node may be hidden.
        """
        if not self._ready():
            self._neutral.count("preempt", "cold")
            return all_candidates(candidates)
        if self._shortlists.hides_nodes(pod):
            # What rejected the shortlist may accept a node that was left out of it.
            return ()
        return rules.preemption_candidates(
            candidates,
            maintenance=self._maintenance,
            tolerated=rules.tolerates_maintenance(pod.record),
            source=self._intents.source_of(pod.record),
        )

    def explain(self) -> list[NodeRow]:
        """Return what is believed about every node, and why, for /debug/nodes."""
        overlay = self._overlay
        if overlay is None:
            return []
        self._assumed.expire(self._clock.monotonic())
        self._refresh_held()
        return explain(
            overlay,
            self._default_pod,
            maintenance=self._maintenance,
            kept_empty=self._kept_empty,
            assumed=self._assumed.on,
            held=self._held_on,
        )

    def _without_maintenance(self, pod: PodRecord, names: Sequence[str]) -> FilterResult:
        found = keep_all(names)
        if not self._maintenance or rules.tolerates_maintenance(pod):
            return found
        return rules.reject(found, self._maintenance, rules.UNDER_MAINTENANCE)

    def _apply_rules(
        self, pod: RequestPod, found: FilterResult, guidance: Guidance | None
    ) -> FilterResult:
        self._refresh_held()
        if guidance is not None:
            found = rules.follow(found, guidance)
        elif self._held:
            crowded = self._crowded(pod.record)
            found = rules.avoid(found, crowded, rules.ROOM_RESERVED)
        if self._kept_empty and len(found.keep) > 1:
            unwanted = self._to_stay_empty(pod, found.keep, guidance)
            found = rules.avoid(found, unwanted, rules.KEPT_EMPTY)
        if self._filters_overloaded and len(found.keep) > 1:
            overloaded = self._overloaded(found.keep, self._demand(pod, guidance))
            found = rules.avoid(found, overloaded, rules.OVERLOADED)
        return found

    def _shortened(
        self, pod: RequestPod, found: FilterResult, guidance: Guidance | None, *, first: bool
    ) -> FilterResult:
        overlay = self._overlay
        if overlay is None:
            return found
        keep = self._shortlists.shorten(
            pod,
            found.keep,
            partial(self._demand, pod, guidance),
            overlay,
            first=first,
            directed=guidance is not None or not self._intents.complete,
            fresh=not (overlay.board.resting or self.outdated),
        )
        return FilterResult(keep, found.failed)

    def _crowded(self, pod: PodRecord) -> set[str]:
        """Return the targets on which this pod would take the room of a moved pod."""
        requests, priority = pod.requests, pod.shape.priority
        return {
            node
            for node, free in self._free.items()
            if rules.takes_reserved_room(
                requests, free, partial(self._held[node].requests, priority, self._assumed)
            )
        }

    def _to_stay_empty(
        self, pod: RequestPod, names: Sequence[str], guidance: Guidance | None
    ) -> Set[str]:
        """Return the nodes that shall get no pods, unless the pod would overload all others."""
        others, kept = parted(names, self._kept_empty)
        if not others or not kept:
            return frozenset()
        hot = self._all_overloaded(others, self._demand(pod, guidance))
        return frozenset() if hot else self._kept_empty

    def _all_overloaded(self, names: Sequence[str], demand: Demand) -> bool:
        overlay = self._overlay
        if overlay is None or overlay.board.resting or self.outdated:
            return False
        return overlay.all_overloaded(names, demand)

    def _overloaded(self, names: Sequence[str], demand: Demand) -> set[str]:
        overlay = self._overlay
        if overlay is None or overlay.board.resting or self.outdated:
            return set()
        return overlay.overloaded(names, demand)

    def _demand(self, pod: RequestPod, guidance: Guidance | None) -> Demand:
        """Return the predicted use and the requests of the pod.

        The use of its predecessor, if known, is the best prediction.
        """
        load, requests = self._load(pod, guidance), pod.record.requests
        return Demand(
            cpu_milli=load.cpu_milli,
            mem_bytes=load.mem_bytes,
            requested_cpu_milli=requests.cpu_milli,
            requested_mem_bytes=requests.mem_bytes,
            newcomer=load.basis is Basis.SPEC,
        )

    def _load(self, pod: RequestPod, guidance: Guidance | None) -> PodLoad:
        before = None if guidance is None else self._intents.predecessors().get(pod.uid)
        if before is not None:
            return PodLoad(before.cpu_milli, before.mem_bytes, Basis.PREDECESSOR)
        return _NO_LOAD if self.board is None else self.board.load.load_of(pod.record)

    def _drop_assumption(self, pod: RequestPod) -> None:
        """Drop outdated assumptions: a pod that is scheduled again was not placed."""
        self._assumed.expire(self._clock.monotonic())
        self._assumed.release(pod.uid)

    def _assume(self, pod: RequestPod, node: str, demand: Demand) -> None:
        known = self._state.pods.by_uid.get(pod.uid)
        if pod.uid and (known is None or not known.node):
            self._assumed.assume(pod.uid, NodeName(node), demand, self._clock.monotonic())

    def _refresh_held(self) -> None:
        held = self._intents.held()
        if held is self._held:
            return
        before, self._held = self._held, held
        self._held_for = {
            each.pod: node for node, room in held.items() for each in room.intents if each.pod
        }
        for node in {*before, *held}:
            if before.get(node) != held.get(node):
                self._update_node(node)

    def _held_on(self, node: NodeName) -> list[Demand]:
        """Return what is reserved on a node for pods that are not charged to a node yet."""
        room = self._held.get(node)
        if room is None:
            return []
        return [
            Demand(
                cpu_milli=each.load.cpu_milli,
                mem_bytes=each.load.mem_bytes,
                requested_cpu_milli=each.requests.cpu_milli,
                requested_mem_bytes=each.requests.mem_bytes,
            )
            for each in room.intents
            if each.pod not in self._assumed
        ]

    def _on_charge(self, node: NodeName, uid: PodUid) -> None:
        self._update_node(node)
        target = self._held_for.get(uid)
        if target is not None and target != node:
            self._update_node(target)

    def _update_node(self, node: NodeName) -> None:
        if self._overlay is None:
            return
        expected, held = self._assumed.on(node), self._held_on(node)
        self._overlay.put(node, [*expected, *held])
        free = self._overlay.free(node, expected) if held else None
        if free is None:
            self._free.pop(node, None)
        else:
            self._free[node] = free

    def _on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        if new is not None and kept_empty(new.annotations):
            self._kept_empty.add(new.name)
        elif old is not None:
            self._kept_empty.discard(old.name)
        if new is not None and under_maintenance(new.labels):
            self._maintenance.add(new.name)
        elif old is not None:
            self._maintenance.discard(old.name)
        self._node_events.on_node(old, new)

    def _on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        self._assumed.on_pod(old, new, self._state.version)


def _lowest(unwanted: Set[str], names: Sequence[str], scores: Scores) -> Scores:
    """Return the scores with these nodes below all others, if there are others."""
    if unwanted.isdisjoint(names) or all(name in unwanted for name in names):
        return scores
    return Scores(
        [
            0 if name in unwanted else max(score, 1)
            for name, score in zip(names, scores.values, strict=True)
        ]
    )


def _preferring(target: str, names: Sequence[str], scores: Scores) -> Scores:
    """Return the scores with the target above all others."""
    return Scores(
        [
            BEST if name == target else min(score, BEST - 1)
            for name, score in zip(names, scores.values, strict=True)
        ]
    )
