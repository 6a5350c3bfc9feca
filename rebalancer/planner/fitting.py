"""Whether the pod that comes after a moved one can run on a node, asked as seldom as possible.

Room is kept by the draft, so the question here is about everything else. Most pods have no
ties to other pods: for them the answer depends on a few fields of their template, is the
same whatever else the plan moves, and is asked once for all pods alike. A pod with ties
(affinity, spreading, ports, volumes, or somebody's anti-affinity about it) is asked about in
the world as the plan has made it by then.

If asking about a pod fails, `Unfit` names the pod: a plan without it may still be possible.

A ReplicaSet's replacement is judged while its predecessor still holds what it holds, a
StatefulSet's after it is gone, a bare pod's copy while the original runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from itertools import chain
from typing import Concatenate, ParamSpec, TypeVar

import msgspec
import numpy as np

from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.resources import NOTHING, Resources
from common.cluster.shapes import PodShape
from common.cluster.tolerations import Effect, Taint, tolerated
from common.fit import Arrive, Candidate, Change, Leave, Terminate, World, replacement
from rebalancer.planner.instance import Flags, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.soft_spread import no_worse

Lines = tuple[tuple[int, int], ...]
"""Requested amounts by line of the room book."""

P = ParamSpec("P")
T = TypeVar("T")


class Unfit(Exception):
    """Asking where a pod could run has failed; the cause is what failed."""

    def __init__(self, pod: PodRecord, cause: Exception) -> None:
        super().__init__(f"{pod.key}: {type(cause).__name__}: {cause}")
        self.pod = pod
        self.cause = cause


_Question = Callable[Concatenate["Fitting", Movable, P], T]


def _naming_the_pod(ask: _Question[P, T]) -> _Question[P, T]:
    """Let whatever goes wrong in a question name the pod that was asked about."""

    @wraps(ask)
    def asked(self: Fitting, m: Movable, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return ask(self, m, *args, **kwargs)
        except Unfit:
            raise
        except Exception as error:
            raise Unfit(m.pod, error) from error

    return asked


class Fitting:
    """Answers about fit for the nodes of one problem, in the order of their rows."""

    def __init__(self, world: World, nodes: Sequence[NodeName]) -> None:
        self.world = world.after()
        self._index = world.index
        self._index.seek(world.snapshot, world.changes)
        self._rows: Ints = np.array([self._index.facts.row_of[n] for n in nodes], dtype=np.int64)
        self._nodes = nodes
        self._candidates: dict[Hashable, Candidate] = {}
        self._keys: dict[int, Hashable | None] = {}
        self._alike: dict[Hashable, Flags] = {}
        self._welcome: dict[Hashable, Flags] = {}
        self._moves: dict[tuple[int, int], tuple[Change, ...]] = {}
        self._lines: dict[Resources, Lines] = {}
        self._room: tuple[Ints, Ints] | None = None
        self.reachable: dict[Hashable, bool] = {}
        """Whether pods of a kind could run on any other node; kept for the drafts."""
        self._first: dict[Hashable, tuple[Flags, Flags | None]] = {}

    def candidate(self, m: Movable) -> Candidate:
        """Return the pod that will come after this one."""
        owner = m.group if not m.stateful else m.pod.uid
        key = (owner or m.pod.uid, id(m.pod.shape), id(m.pod.labels))
        if key not in self._candidates:
            try:
                self._candidates[key] = replacement(m.pod, self.world.snapshot)
            except Exception as error:
                raise Unfit(m.pod, error) from error
        return self._candidates[key]

    def lines(self, m: Movable) -> Lines:
        """Return what the replacement asks for, by line of the room book."""
        return self._by_line(self.candidate(m).shape.requests)

    def held(self, m: Movable) -> Lines:
        """Return what the pod holds where it is, by line of the room book."""
        return self._by_line(m.pod.shape.requests)

    def _by_line(self, amounts: Resources) -> Lines:
        found = self._lines.get(amounts)
        if found is None:
            found = self._lines[amounts] = tuple(self._index.occupancy.lines(amounts))
        return found

    def room(self) -> tuple[Ints, Ints]:
        """Return free amounts by (line, row) and free places, promises to waiting pods kept."""
        if self._room is None:
            self._room = self._measured()
        free, places = self._room
        return free.copy(), places.copy()

    def _measured(self) -> tuple[Ints, Ints]:
        self._index.seek(self.world.snapshot, ())
        book = self._index.occupancy
        free = (book.allocatable - book.requested)[:, self._rows]
        places = (book.max_pods - book.pods)[self._rows]
        for row, name in enumerate(self._nodes):
            for pod in self.world.snapshot.by_nomination[name].values():
                places[row] -= 1
                for line, amount in book.lines(pod.shape.requests):
                    free[line, row] -= amount
        return free, places

    @_naming_the_pod
    def has_ties(self, m: Movable) -> bool:
        """Tell whether other pods decide where this one may run."""
        return self._key(m) is None

    @_naming_the_pod
    def kind(self, m: Movable) -> Hashable:
        """Return what all pods have in common for which the first answer is the same."""
        key = self._key(m)
        return self._tied_key(m) if key is None else key

    @_naming_the_pod
    def possible(self, m: Movable) -> Flags:
        """Return where the replacement could run as the cluster is now, room aside."""
        key = self._key(m)
        if key is None:
            return self._asked_first(m)[0]
        if key not in self._alike:
            self._alike[key] = self._ask(self.world, m)
        return self._alike[key]

    @_naming_the_pod
    def spreads_no_worse(self, m: Movable) -> Flags | None:
        """Return where no soft constraint is violated more than it is now."""
        if not any(not constraint.hard for constraint in self.candidate(m).shape.spread):
            return None
        return self._asked_first(m)[1]

    @_naming_the_pod
    def now(self, m: Movable, changes: tuple[Change, ...]) -> tuple[Flags, Flags | None]:
        """Return the same two answers after what the plan has changed so far."""
        world = self.world.after(*changes, *departure(m))
        soft = any(not constraint.hard for constraint in self.candidate(m).shape.spread)
        question = world.ask(self._unburdened(m))
        fits = question.mask()[self._rows]
        return fits, no_worse(question, int(self._rows[m.row]))[self._rows] if soft else None

    @_naming_the_pod
    def welcome(self, m: Movable) -> Flags:
        """Return the rows without a taint that would rather not have the pod."""
        tolerations = self.candidate(m).shape.tolerations
        if tolerations not in self._welcome:
            leave = [t for t in tolerations if t.effect in ("", Effect.PREFER_NO_SCHEDULE)]

            def unwelcome(taints: tuple[Taint, ...]) -> int:
                soft = (t for t in taints if t.effect == Effect.PREFER_NO_SCHEDULE)
                return int(any(not tolerated(taint, leave) for taint in soft))

            self._index.seek(self.world.snapshot, ())
            self._welcome[tolerations] = self._index.facts.per_taints(unwelcome)[self._rows] == 0
        return self._welcome[tolerations]

    @_naming_the_pod
    def words(self, m: Movable, row: int) -> str:
        """Say why the replacement does not fit on a node as the cluster is now."""
        world = self.world.after(*departure(m))
        found = world.refusals(self.candidate(m), self._nodes[row])
        return (
            ", ".join(sorted({refusal.words for refusal in found})) or "no room left by this plan"
        )

    def move(self, m: Movable, row: int) -> tuple[Change, ...]:
        """Return what moving a pod changes; always the same objects, by which worlds are told
        apart: going from one to another then costs only what differs."""
        found = self._moves.get((m.number, row))
        if found is None:
            pod = msgspec.structs.replace(self.candidate(m), uid=PodUid(f"after/{m.pod.uid}"))
            left = departure(m) or (Terminate(m.pod.uid),)
            found = self._moves[m.number, row] = (*left, Arrive(pod, self._nodes[row]))
        return found

    def _asked_first(self, m: Movable) -> tuple[Flags, Flags | None]:
        """Ask about a pod with ties in the world as it is; alike replicas share the answer."""
        key = self._tied_key(m)
        if key not in self._first:
            self._first[key] = self.now(m, ())
        return self._first[key]

    def _tied_key(self, m: Movable) -> Hashable:
        shape = self.candidate(m).shape
        alike = not (shape.spread or m.stateful or m.group is None)
        return (m.group, id(m.pod.shape), id(m.pod.labels)) if alike else m.pod.uid

    def _ask(self, world: World, m: Movable) -> Flags:
        mask: Flags = world.mask(self._unburdened(m))[self._rows]
        return mask

    def _unburdened(self, m: Movable) -> Candidate:
        """Return the replacement as if it asked for nothing: the draft keeps the room."""
        candidate = self.candidate(m)
        shape = msgspec.structs.replace(candidate.shape, requests=NOTHING)
        return msgspec.structs.replace(candidate, shape=shape)

    def _key(self, m: Movable) -> Hashable | None:
        if m.number not in self._keys:
            self._keys[m.number] = self._found_key(m)
        return self._keys[m.number]

    def _found_key(self, m: Movable) -> Hashable | None:
        candidate = self.candidate(m)
        shape = candidate.shape
        if _tied(shape) or self._minded(candidate):
            return None
        return (
            shape.tolerations,
            shape.node_selector,
            shape.required_nodes,
            shape.features,
            shape.inline_drivers,
            shape.resource_claims,
        )

    def _minded(self, candidate: Candidate) -> bool:
        """Tell whether some running pod's anti-affinity is about this one."""
        namespace = self.world.snapshot.namespaces.get(candidate.namespace)
        labels = namespace.labels if namespace is not None else {}
        # Wherever the plan has brought the index: moving a pod does not change its terms.
        about = self._index.grudges.about(candidate.namespace, candidate.labels, labels)
        return next(about, None) is not None


def departure(m: Movable) -> tuple[Change, ...]:
    """Return what has happened to a pod when its replacement looks for a node."""
    if m.stateful:
        return (Leave(m.pod.uid),)
    return (Terminate(m.pod.uid),) if m.group is not None else ()


def _tied(shape: PodShape) -> bool:
    return any(
        chain(
            shape.affinity,
            shape.anti_affinity,
            shape.spread,
            shape.host_ports,
            shape.claims,
            shape.ephemeral_claims,
            shape.disks,
        )
    )
