# SPDX-License-Identifier: Apache-2.0
"""Whether the pod that comes after a moved one can run on a node, asked as seldom as possible.

Room is kept by the draft, so the question here is about everything else. Most pods have no
ties to other pods: for them the answer depends on a few fields of their template, is the
same whatever else the plan moves, and is asked once for all pods alike. A pod with ties
(affinity, spreading, ports, volumes, or another pod's anti-affinity) is asked about in
the world as the plan has made it by then.

If asking about a pod fails, `Unfit` names the pod: a plan without it may still be possible.

A ReplicaSet's replacement is judged while its predecessor still holds what it holds, a
StatefulSet's after it is gone, a bare pod's copy and the additional replica of a surge while
the original runs, and once more as it will be without it.

Where replicas repel each other in zones and every zone has one, a replacement fits nowhere while
its predecessor terminates. It is judged after that is gone: kube-scheduler tries it again then
(isSchedulableAfterPodChange in pkg/scheduler/framework/plugins/interpodaffinity/plugin.go).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from itertools import chain
from typing import Concatenate, ParamSpec, TypeVar

import msgspec
import numpy as np

from common.api.objects import Effect, Taint
from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.resources import NOTHING, Resources
from common.cluster.shapes import PodShape, Spread
from common.cluster.storage import VolumeRecord
from common.cluster.tolerations import tolerated
from common.fit import Arrive, Candidate, Change, Leave, Terminate, World, replacement
from common.fit.predicates.volume_binding import VOLUME_BINDING
from common.fit.predicates.volume_zone import VOLUME_ZONE, ZONE_LABELS
from rebalancer.goals import Distribute
from rebalancer.planner.instance import Flags, Ints
from rebalancer.planner.kept_domains import KeptDomains
from rebalancer.planner.movable import Movable
from rebalancer.planner.moved_ties import Ties, ties_of
from rebalancer.planner.soft_spread import no_worse, skews
from rebalancer.strategies.preferences import Preferences
from rebalancer.strategies.shares import HOST
from rebalancer.strategies.topologies import Topology, topology_of

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
    """Name the pod that was asked about in whatever goes wrong."""

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
        self._candidate_of: dict[int, Candidate] = {}
        self._in_its_own_way: dict[int, bool] = {}
        self._keys: dict[int, Hashable | None] = {}
        self._alike: dict[Hashable, Flags] = {}
        self._alone: dict[Hashable, Flags] = {}
        self._welcome: dict[Hashable, Flags] = {}
        self._preferences = Preferences(world)
        self._moves: dict[tuple[int, int], tuple[Change, ...]] = {}
        self._ties: dict[tuple[int, int, int], Ties] = {}
        self._skews: dict[int, tuple[int, ...]] = {}
        self._lines: dict[Resources, Lines] = {}
        self._asked_of: dict[int, Lines] = {}
        self._held_of: dict[int, Lines] = {}
        self._ties_of: dict[int, Ties] = {}
        self._room: tuple[Ints, Ints] | None = None
        self.reachable: dict[Hashable, bool] = {}
        """Whether pods of a kind could run on any other node; kept for the drafts."""
        self._first: dict[Hashable, tuple[Flags, Flags | None]] = {}

    def candidate(self, m: Movable) -> Candidate:
        """Return the pod that will come after this one."""
        found = self._candidate_of.get(m.number)
        if found is None:
            found = self._candidate_of[m.number] = self._shared_candidate(m)
        return found

    def _shared_candidate(self, m: Movable) -> Candidate:
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
        found = self._asked_of.get(m.number)
        if found is None:
            found = self._asked_of[m.number] = self._by_line(self.candidate(m).shape.requests)
        return found

    def held(self, m: Movable) -> Lines:
        """Return what the pod holds where it is, by line of the room book."""
        found = self._held_of.get(m.number)
        if found is None:
            found = self._held_of[m.number] = self._by_line(m.pod.shape.requests)
        return found

    def _by_line(self, amounts: Resources) -> Lines:
        found = self._lines.get(amounts)
        if found is None:
            found = self._lines[amounts] = tuple(self._index.occupancy.lines(amounts))
        return found

    def room(self) -> tuple[Ints, Ints]:
        """Return free amounts by (line, row) and free pod slots; nominated pods keep their room."""
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

    def has_ties(self, m: Movable) -> bool:
        """Tell whether other pods decide where this one may run."""
        return self._key(m) is None

    def ties(self, m: Movable) -> Ties:
        """Return what ties a pod and its replacement to others."""
        found = self._ties_of.get(m.number)
        if found is None:
            found = self._ties_of[m.number] = self._found_ties(m)
        return found

    @_naming_the_pod
    def _found_ties(self, m: Movable) -> Ties:
        candidate = self.candidate(m)
        key = (id(candidate), id(m.pod.labels), id(m.pod.shape))
        if key not in self._ties:
            found = ties_of(candidate.shape, candidate.labels, m.pod.labels)
            # Where its own anti-affinity differs from that of its replacement, both count.
            before = ties_of(m.pod.shape, m.pod.labels)
            self._ties[key] = found._replace(forbidden=found.forbidden | before.forbidden)
        return self._ties[key]

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
    def ever_possible(self, m: Movable) -> Flags:
        """Return where the replacement could run if all other pods were elsewhere, room aside."""
        key = self.lasting_key(m)
        if key not in self._alone:
            self._alone[key] = self._reached_alone(m)
        return self._alone[key]

    @_naming_the_pod
    def lasting_key(self, m: Movable) -> Hashable:
        """Return what all pods have in common that could run on the same nodes at any time."""
        shape = self._lasting_shape(m)
        return _static_key(shape), frozenset(map(_place_key, self._volumes(m, shape).values()))

    def _lasting_shape(self, m: Movable) -> PodShape:
        # The replacement of any other pod has its shape, except for what it requests.
        return self.candidate(m).shape if m.stateful else m.pod.shape

    def _volumes(self, m: Movable, shape: PodShape) -> dict[str, VolumeRecord]:
        """Return the volumes that the replacement will have for certain, by claim."""
        snapshot, found = self.world.snapshot, {}
        for name in shape.claims:
            claim = snapshot.claims.get(f"{m.pod.namespace}/{name}")
            usable = claim is not None and claim.phase != "Lost" and claim.deleted_s is None
            volume = snapshot.volumes.get(claim.volume) if claim is not None else None
            if claim is not None and claim.bound and usable and volume is not None:
                found[name] = volume
        return {name: volume for name, volume in found.items() if not volume.in_tree}

    def _reached_alone(self, m: Movable) -> Flags:
        shape = self._lasting_shape(m)
        bare = msgspec.structs.replace(
            shape,
            requests=NOTHING,
            affinity=(),
            anti_affinity=(),
            spread=(),
            host_ports=(),
            claims=(),
            ephemeral_claims=(),
            disks=(),
        )
        alone = msgspec.structs.replace(self.candidate(m), shape=bare, labels={})
        found: Flags = self.world.mask(alone, room_aside=True)[self._rows]
        claims = tuple(self._volumes(m, shape))
        if claims:
            mounted = msgspec.structs.replace(bare, claims=claims)
            question = self.world.ask(msgspec.structs.replace(alone, shape=mounted))
            question.seek()
            for predicate in (VOLUME_BINDING, VOLUME_ZONE):
                allowed = predicate.allow(question)
                if allowed is not None:
                    found = found & allowed[self._rows]
        return found

    def kept_domains(self) -> KeptDomains:
        """Return who answers which pods cannot leave their domains."""
        return KeptDomains(self.world, self._rows)

    @_naming_the_pod
    def spreads_no_worse(self, m: Movable) -> Flags | None:
        """Return where no soft constraint is violated more than it is now."""
        if not any(not constraint.hard for constraint in self.candidate(m).shape.spread):
            return None
        return self._asked_first(m)[1]

    @_naming_the_pod
    def now(self, m: Movable, changes: tuple[Change, ...]) -> tuple[Flags, Flags | None]:
        """Return the same two answers after what the plan has changed so far."""
        world, later = self._worlds(m, changes)
        soft = any(not constraint.hard for constraint in self.candidate(m).shape.spread)
        today = self._skews_today(m) if soft else ()
        question = world.ask(self._unburdened(m))
        fits = question.mask(room_aside=True)[self._rows]
        home = int(self._rows[m.row])
        unspoiled = no_worse(question, home, today)[self._rows] if soft else None
        return fits if later is None else fits & self._ask(later, m), unspoiled

    @_naming_the_pod
    def domains_aside(self, m: Movable, changes: tuple[Change, ...]) -> Flags:
        """Return where a pod fits after changes if its domains held as few pods as it needs."""
        world, bare = self._worlds(m, changes)[0], self._unburdened(m)
        shape = msgspec.structs.replace(bare.shape, spread=())
        fits: Flags = world.ask(msgspec.structs.replace(bare, shape=shape)).mask(room_aside=True)
        hard = (t for t in self.topologies(m, changes) if t.constraint.hard)
        found: Flags = np.logical_and.reduce([fits[self._rows], *(t.ids >= 0 for t in hard)])
        return found

    def _worlds(self, m: Movable, changes: tuple[Change, ...]) -> tuple[World, World | None]:
        """Return the world in which the replacement looks for a node, and a later one.

        Where the original leaves after that, the constraints of the user hold without it too:
        the domain that it leaves may then have too few, or the replacement nothing to be near.
        """
        gone = departure(m)
        world = self.world.after(*changes, *gone)
        if not gone:
            return world, world.after(Terminate(m.pod.uid))
        if self.is_in_its_own_way(m) and not self._ask(world, m).any():
            world = self.world.after(*changes, Leave(m.pod.uid))
        return world, None

    def is_in_its_own_way(self, m: Movable) -> bool:
        """Tell whether a pod keeps its replacement out of a domain that has other nodes too."""
        found = self._in_its_own_way.get(id(self.candidate(m)))
        if found is None:
            found = _repels_itself(self.candidate(m))
            self._in_its_own_way[id(self.candidate(m))] = found
        return found and m.group is not None and not (m.stateful or m.surges)

    def _skews_today(self, m: Movable) -> tuple[int, ...]:
        """Return how uneven the soft constraints of a pod are before the plan."""
        key = id(self.candidate(m))
        if key not in self._skews:
            self._skews[key] = skews(self.world.ask(self._unburdened(m)))
        return self._skews[key]

    @_naming_the_pod
    def topologies(self, m: Movable, changes: tuple[Change, ...]) -> list[Topology]:
        """Return how the pods that a pod's spread constraints count are spread after changes."""
        candidate, world = self.candidate(m), self.world.after(*changes)
        return [topology_of(world, candidate, c, self._rows) for c in candidate.shape.spread]

    def spread_of(self, candidate: Candidate, constraint: Spread) -> Topology:
        """Return how the pods that a constraint counts are spread as the cluster is now."""
        return topology_of(self.world, candidate, constraint, self._rows)

    def topology_of(self, goal: Distribute) -> Topology:
        """Return the same for the constraint of a goal."""
        snapshot = self.world.snapshot
        candidate = replacement(snapshot.pods[goal.pod], snapshot)
        return self.spread_of(candidate, goal.constraint)

    @_naming_the_pod
    def welcome(self, m: Movable) -> Flags:
        """Return the rows without a PreferNoSchedule taint that the pod does not tolerate."""
        tolerations = self.candidate(m).shape.tolerations
        if tolerations not in self._welcome:
            leave = [t for t in tolerations if t.effect in ("", Effect.PREFER_NO_SCHEDULE)]

            def unwelcome(taints: tuple[Taint, ...]) -> int:
                soft = (t for t in taints if t.effect == Effect.PREFER_NO_SCHEDULE)
                return int(any(not tolerated(taint, leave) for taint in soft))

            self._index.seek(self.world.snapshot, ())
            self._welcome[tolerations] = self._index.facts.per_taints(unwelcome)[self._rows] == 0
        return self._welcome[tolerations]

    def suits_no_less(self, m: Movable) -> Flags | None:
        """Return the rows with as much of its preferred node affinity as its own; None for all."""
        shape = self.candidate(m).shape
        own = self._preferences.of(shape, m.pod.node)
        # A node that is tainted against it is worse than any that is not.
        if own.untainted or not own.weight:
            return None
        enough: Flags = self._preferences.weights(shape)[self._rows] >= own.weight
        return enough

    @_naming_the_pod
    def why_not(self, m: Movable, row: int) -> str:
        """Return why the replacement does not fit on a node as the cluster is now."""
        worlds = (world for world in self._worlds(m, ()) if world is not None)
        asked = (world.rejections(self.candidate(m), self._nodes[row]) for world in worlds)
        found = next((rejections for rejections in asked if rejections), ())
        return (
            ", ".join(sorted({rejection.message for rejection in found}))
            or "no room left by this plan"
        )

    def move(self, m: Movable, row: int) -> tuple[Change, ...]:
        """Return what moving a pod changes.

        Always the same objects, because worlds are compared by identity: going from one to
        another then costs only what differs.
        """
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
        alike = not (shape.spread or m.stateful or m.group is None or self.is_in_its_own_way(m))
        return (m.group, id(m.pod.shape), id(m.pod.labels)) if alike else m.pod.uid

    def _ask(self, world: World, m: Movable) -> Flags:
        mask: Flags = world.mask(self._unburdened(m), room_aside=True)[self._rows]
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

    @_naming_the_pod
    def _found_key(self, m: Movable) -> Hashable | None:
        candidate = self.candidate(m)
        shape = candidate.shape
        if _tied(shape) or self._minded(candidate):
            return None
        return _static_key(shape)

    def _minded(self, candidate: Candidate) -> bool:
        """Tell whether some running pod's anti-affinity is about this one."""
        namespace = self.world.snapshot.namespaces.get(candidate.namespace)
        labels = namespace.labels if namespace is not None else {}
        # The index may stand at any point of the plan: moving a pod does not change its terms.
        about = self._index.anti_affinity_terms.about(candidate.namespace, candidate.labels, labels)
        return next(about, None) is not None


def _static_key(shape: PodShape) -> Hashable:
    """Return what decides where a pod may run, other pods aside."""
    return (
        shape.tolerations,
        shape.node_selector,
        shape.required_nodes,
        shape.features,
        shape.inline_drivers,
        shape.resource_claims,
    )


def _place_key(volume: VolumeRecord) -> Hashable:
    """Return what decides which nodes a volume can be used on."""
    return volume.nodes, tuple(volume.labels.get(label, "") for label in ZONE_LABELS)


def departure(m: Movable) -> tuple[Change, ...]:
    """Return what has happened to a pod when its replacement looks for a node."""
    if m.surges:
        return ()
    if m.stateful:
        return (Leave(m.pod.uid),)
    return (Terminate(m.pod.uid),) if m.group is not None else ()


def _repels_itself(candidate: Candidate) -> bool:
    return any(
        term.topology_key != HOST and term.selects(candidate.namespace, candidate.labels)
        for term in candidate.shape.anti_affinity
    )


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
