"""Decides what kube-scheduler asks, from what is known at that moment.

Three things are put together: the board, made in a thread whenever the belief has changed;
what the board cannot know yet (answers whose pods were not seen, room that is held for moved
pods), laid over it; and what must be current to the event: which nodes are under
maintenance, and where pods were bound. The last come from listeners, not from the board.

Load and intents never empty a list. Before the cluster is known nothing is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from common.clock import Clock
from common.cluster.records import NodeName, NodeRecord, PodRecord, PodUid
from common.cluster.state import ClusterState
from common.config import ExtenderConfiguration, Overloaded
from common.contract import under_maintenance
from common.load import Basis, Load, PodLoad
from common.metrics import Metrics
from extender import filtering, preemption
from extender.asking import AskedPod, Filtered, Marks, Victims
from extender.assumed import Assumed
from extender.explaining import NodeRow, explain
from extender.intents import Guidance, Held
from extender.neutral import Neutral, equal_scores, keep_all
from extender.scoring import BEST, Board, Demand, Overlay, ScoreSettings, likeliest
from extender.waiting import NodeEvents

_NO_LOAD: Final = PodLoad(0.0, 0.0, Basis.SPEC)


class Guide(Protocol):
    """Knows where the replacements of moved pods are to go."""

    def guidance(self, pod: PodRecord, names: Collection[str]) -> Guidance | None: ...
    def source_of(self, pod: PodRecord) -> NodeName | None: ...
    def held(self) -> Mapping[NodeName, Held]: ...
    def predecessors(self) -> Mapping[PodUid, Load]: ...


class Advisor:
    """Implements `Verdicts`; lives on the event loop."""

    def __init__(
        self,
        state: ClusterState,
        intents: Guide,
        *,
        config: ExtenderConfiguration,
        clock: Clock,
        metrics: Metrics,
        ready: Callable[[], bool],
    ) -> None:
        self.settings = score_settings(config)
        self._state = state
        self._intents = intents
        self._clock = clock
        self._ready = ready
        self._expiry_s = config.metric_expiry.seconds
        self._confirmed_s = clock.monotonic()
        self._drops_overloaded = config.overloaded is Overloaded.FILTER
        self._silent_pod = Demand(
            cpu_milli=config.estimates.cpu_milli, mem_bytes=config.estimates.mem_bytes
        )
        self._overlay: Overlay | None = None
        self._held: Mapping[NodeName, Held] = {}
        self._held_for: Mapping[PodUid, NodeName] = {}
        self._free: dict[NodeName, Load] = {}
        """What can still be requested of nodes on which room is held."""
        self._assumed = Assumed(metrics, self._charged)
        self._events = NodeEvents(clock, metrics)
        self._neutral = Neutral(metrics, clock)
        self._maintenance = {
            name
            for name in state.nodes.records
            if (node := state.nodes.records.get(name)) is not None
            and under_maintenance(node.labels)
        }
        state.nodes.listen(self._on_node)
        state.pods.listen(self._on_pod)

    @property
    def board(self) -> Board | None:
        """What answers are made from; none before the first."""
        return None if self._overlay is None else self._overlay.board

    def use(self, board: Board) -> None:
        """Answer from this board from now on."""
        self.confirm()
        self._overlay = None  # so that nothing is drawn twice
        self._assumed.settle(board.version)
        self._overlay = Overlay(board)
        for node in {*self._assumed.nodes(), *self._held}:
            self._redraw(node)

    def confirm(self) -> None:
        """Note that the board still is what is believed."""
        self._confirmed_s = self._clock.monotonic()

    @property
    def outdated(self) -> bool:
        """Tell whether the board is so old that load must not decide any more."""
        return self._clock.monotonic() - self._confirmed_s > self._expiry_s

    async def filter(self, pod: AskedPod, names: Sequence[str]) -> Filtered:
        """Refuse nodes under maintenance, then steer; see `filtering`."""
        if not self._ready():
            self._neutral.count("filter", "cold")
            return keep_all(names)
        self._forget(pod)
        judge = partial(self._spare_maintenance, pod.record, names)
        found = await self._events.before_refusing_all(judge)
        if not found.keep:
            return found
        guidance = self._intents.guidance(pod.record, found.keep)
        found = self._steer(pod, found, guidance)
        if len(found.keep) == 1:
            self._assume(pod, found.keep[0], self._demand(pod, guidance))
        elif self._overlay is not None:
            self._overlay.expect(found.keep)
        return found

    def prioritize(self, pod: AskedPod, names: Sequence[str]) -> Sequence[int]:
        """Score by what each node will use; a planned node comes first."""
        overlay = self._overlay
        if not names:
            return ()
        if overlay is None or not self._ready():
            self._neutral.count("prioritize", "cold")
            return equal_scores(names)
        self._forget(pod)
        guidance = self._intents.guidance(pod.record, names)
        self._look_at_held()
        demand = self._demand(pod, guidance)
        target = None if guidance is None else guidance.target
        best: str | None = target
        if overlay.board.resting or self.outdated:
            self._neutral.count("prioritize", "resting")
            scores = equal_scores(names)
        else:
            found = overlay.scores(names, demand)
            scores = Marks(found.tolist(), overlay.written(names, found))
            best = best or names[likeliest(found, pod.uid)]
        if best is not None:
            self._assume(pod, best, demand)
        return scores if target is None else _preferring(target, names, scores)

    def preempt(self, pod: AskedPod, candidates: Mapping[str, Victims]) -> Collection[str]:
        """Drop candidates that the filter would refuse, so that nobody dies for them."""
        if not self._ready():
            self._neutral.count("preempt", "cold")
            return candidates.keys()
        return preemption.kept(
            candidates,
            maintenance=self._maintenance,
            tolerated=filtering.tolerates_maintenance(pod.record),
            source=self._intents.source_of(pod.record),
        )

    def explain(self) -> list[NodeRow]:
        """Return what is believed of every node, and why."""
        overlay = self._overlay
        if overlay is None:
            return []
        self._assumed.expire(self._clock.monotonic())
        self._look_at_held()
        return explain(
            overlay,
            self._silent_pod,
            maintenance=self._maintenance,
            assumed=self._assumed.on,
            held=self._held_on,
        )

    def _spare_maintenance(self, pod: PodRecord, names: Sequence[str]) -> Filtered:
        found = keep_all(names)
        if not self._maintenance or filtering.tolerates_maintenance(pod):
            return found
        return filtering.refuse(found, self._maintenance, filtering.UNDER_MAINTENANCE)

    def _steer(self, pod: AskedPod, found: Filtered, guidance: Guidance | None) -> Filtered:
        self._look_at_held()
        if guidance is not None:
            found = filtering.follow(found, guidance)
        elif self._held:
            crowded = self._crowded(pod.record)
            found = filtering.avoid(found, crowded, filtering.ROOM_IS_HELD)
        if self._drops_overloaded and len(found.keep) > 1:
            overloaded = self._overloaded(found.keep, self._demand(pod, guidance))
            found = filtering.avoid(found, overloaded, filtering.OVERLOADED)
        return found

    def _crowded(self, pod: PodRecord) -> set[str]:
        """Return the targets on which this pod would take the room of a moved one."""
        asked, priority = pod.requests, pod.shape.priority
        return {
            node
            for node, free in self._free.items()
            if filtering.takes_held_room(
                asked, free, partial(self._held[node].requests, priority, self._assumed)
            )
        }

    def _overloaded(self, names: Sequence[str], demand: Demand) -> set[str]:
        overlay = self._overlay
        if overlay is None or overlay.board.resting or self.outdated:
            return set()
        return overlay.overloaded(names, demand)

    def _demand(self, pod: AskedPod, guidance: Guidance | None) -> Demand:
        """Return what the pod will use and asks for; its predecessor knows best."""
        load, asked = self._load(pod, guidance), pod.record.requests
        return Demand(
            cpu_milli=load.cpu_milli,
            mem_bytes=load.mem_bytes,
            asked_cpu_milli=asked.cpu_milli,
            asked_mem_bytes=asked.mem_bytes,
            newcomer=load.basis is Basis.SPEC,
        )

    def _load(self, pod: AskedPod, guidance: Guidance | None) -> PodLoad:
        before = None if guidance is None else self._intents.predecessors().get(pod.uid)
        if before is not None:
            return PodLoad(before.cpu_milli, before.mem_bytes, Basis.PREDECESSOR)
        return _NO_LOAD if self.board is None else self.board.load.load_of(pod.record)

    def _forget(self, pod: AskedPod) -> None:
        """Drop guesses that are over: a pod that is asked about got none of our answers."""
        self._assumed.expire(self._clock.monotonic())
        self._assumed.release(pod.uid)

    def _assume(self, pod: AskedPod, node: str, demand: Demand) -> None:
        known = self._state.pods.by_uid.get(pod.uid)
        if pod.uid and (known is None or not known.node):
            self._assumed.assume(pod.uid, NodeName(node), demand, self._clock.monotonic())

    def _look_at_held(self) -> None:
        held = self._intents.held()
        if held is self._held:
            return
        before, self._held = self._held, held
        self._held_for = {
            each.pod: node for node, room in held.items() for each in room.intents if each.pod
        }
        for node in {*before, *held}:
            if before.get(node) != held.get(node):
                self._redraw(node)

    def _held_on(self, node: NodeName) -> list[Demand]:
        """Return what is held on a node for pods that are not charged to any yet."""
        room = self._held.get(node)
        if room is None:
            return []
        return [
            Demand(
                cpu_milli=each.load.cpu_milli,
                mem_bytes=each.load.mem_bytes,
                asked_cpu_milli=each.requests.cpu_milli,
                asked_mem_bytes=each.requests.mem_bytes,
            )
            for each in room.intents
            if each.pod not in self._assumed
        ]

    def _charged(self, node: NodeName, uid: PodUid) -> None:
        self._redraw(node)
        target = self._held_for.get(uid)
        if target is not None and target != node:
            self._redraw(target)

    def _redraw(self, node: NodeName) -> None:
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
        if new is not None and under_maintenance(new.labels):
            self._maintenance.add(new.name)
        elif old is not None:
            self._maintenance.discard(old.name)
        self._events.happened(old, new)

    def _on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        self._assumed.on_pod(old, new, self._state.version)


def score_settings(config: ExtenderConfiguration) -> ScoreSettings:
    """Return how the configuration wants nodes to be scored."""
    return ScoreSettings(
        cpu_threshold=config.cpu_threshold,
        mem_threshold=config.memory_threshold,
        new_pod_floor=config.new_pod_floor,
    )


def _preferring(target: str, names: Sequence[str], scores: Sequence[int]) -> list[int]:
    """Return the scores with the target above all others."""
    return [
        BEST if name == target else min(score, BEST - 1)
        for name, score in zip(names, scores, strict=True)
    ]
