# SPDX-License-Identifier: Apache-2.0
"""All faults that can be injected, from Python and through the control endpoint.

Each fault is a value; `inject` applies it and returns a number by which it can be removed
again. A fault that cannot be undone (a dropped watch) is over at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import msgspec

from simulator.api import Faults
from simulator.nodes.fleet import Fleet
from simulator.nodes.metrics import MetricsServer


class FaultError(ValueError):
    """A fault that cannot be injected into this cluster."""


class Base(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all faults; in JSON the field `fault` names the type."""


class _OnRequests(Base, frozen=True, kw_only=True):
    verbs: tuple[str, ...] = ()
    """get, list, watch, create, update, patch, delete; empty means all."""
    resources: tuple[str, ...] = ()
    """`pods`, `pods/eviction`, `nodes.metrics.k8s.io`; empty means all."""
    probability: float = 1.0
    times: int | None = None
    """How many requests it affects; None means all."""


class Latency(_OnRequests, frozen=True, kw_only=True, tag_field="fault", tag="latency"):
    """Responses are delayed."""

    seconds: float


class Throttle(_OnRequests, frozen=True, kw_only=True, tag_field="fault", tag="throttle"):
    """Requests are rejected with 429 and Retry-After."""

    retry_after_seconds: int = 1


class ServerError(_OnRequests, frozen=True, kw_only=True, tag_field="fault", tag="error"):
    """Requests fail with a server error."""

    status: int = 500


class LostAnswers(_OnRequests, frozen=True, kw_only=True, tag_field="fault", tag="lost-answers"):
    """Requests are carried out, but the connection breaks before the response."""


class DropWatches(Base, frozen=True, tag_field="fault", tag="drop-watches"):
    """Open watches break like a lost connection."""

    resource: str | None = None


class FreezeWatches(Base, frozen=True, tag_field="fault", tag="freeze-watches"):
    """Open watches send nothing more, while their connections stay open."""

    resources: tuple[str, ...] = ()


class MetricsMissing(Base, frozen=True, tag_field="fault", tag="metrics-missing"):
    """Nodes and their pods are not measured; `*` is all of them."""

    node: str = "*"


class MetricsFrozen(Base, frozen=True, tag_field="fault", tag="metrics-frozen"):
    """Measurements are not updated any more."""

    node: str = "*"


class MetricsAbsurd(Base, frozen=True, tag_field="fault", tag="metrics-absurd"):
    """Measurements are multiplied by a factor."""

    node: str = "*"
    factor: float = 1000.0


class MetricsUnavailable(Base, frozen=True, tag_field="fault", tag="metrics-unavailable"):
    """The metrics API responds with 503."""


class MetricsAbsent(Base, frozen=True, tag_field="fault", tag="metrics-absent"):
    """There is no metrics API: metrics-server is not installed yet."""


class NodeDeath(Base, frozen=True, tag_field="fault", tag="node-death"):
    """A kubelet stops with its machine; when the fault is removed, it runs again."""

    node: str


class NodeNotReady(Base, frozen=True, tag_field="fault", tag="node-not-ready"):
    """A kubelet reports NotReady."""

    node: str


class RejectPods(Base, frozen=True, tag_field="fault", tag="reject-pods"):
    """A kubelet rejects every new pod."""

    node: str


class ImagePulls(Base, frozen=True, tag_field="fault", tag="image-pulls"):
    """Images cannot be pulled: by node and image name; `*` is all of them."""

    node: str = "*"
    image: str = "*"


class SlowStarts(Base, frozen=True, tag_field="fault", tag="slow-starts"):
    """Pods take a multiple of their time to start; `*` is all nodes."""

    factor: float = 10.0
    node: str = "*"


AnyFault = (
    Latency
    | Throttle
    | ServerError
    | LostAnswers
    | DropWatches
    | FreezeWatches
    | MetricsMissing
    | MetricsFrozen
    | MetricsAbsurd
    | MetricsUnavailable
    | MetricsAbsent
    | NodeDeath
    | NodeNotReady
    | RejectPods
    | ImagePulls
    | SlowStarts
)

Undo = Callable[[], None]
_NOTHING: Final[Undo] = lambda: None  # noqa: E731 - a constant that does nothing


class ClusterFaults:
    """All faults of a cluster; initially none."""

    def __init__(self, api: Faults, fleet: Fleet, metrics: MetricsServer) -> None:
        self._api = api
        self._fleet = fleet
        self._metrics = metrics
        self._numbers = itertools.count(1)
        self._active: dict[int, tuple[AnyFault, Undo]] = {}

    @property
    def active(self) -> dict[int, AnyFault]:
        """The faults that can be removed, by number."""
        return {number: fault for number, (fault, _) in self._active.items()}

    def inject(self, fault: AnyFault) -> int:
        """Apply a fault from now on; return its number."""
        undo = self._apply(fault)
        number = next(self._numbers)
        if undo is not _NOTHING:
            self._active[number] = (fault, undo)
        return number

    def withdraw(self, number: int) -> None:
        """Remove a fault; raise KeyError if there is no such fault."""
        _, undo = self._active.pop(number)
        undo()

    def clear(self) -> None:
        """Remove all faults."""
        for number in tuple(self._active):
            self.withdraw(number)

    def _apply(self, fault: AnyFault) -> Undo:
        match fault:
            case Latency() | Throttle() | ServerError() | LostAnswers():
                return self._on_requests(fault)
            case DropWatches():
                self._api.drop_watches(fault.resource)
                return _NOTHING
            case FreezeWatches():
                self._api.freeze_watches(*fault.resources)
                return self._api.thaw_watches
            case NodeDeath() | NodeNotReady() | RejectPods():
                return self._on_node(fault)
            case SlowStarts():
                return self._slow_starts(fault)
            case ImagePulls():
                missing, what = self._fleet.registry.missing, (fault.node, fault.image)
                missing.add(what)
                return lambda: missing.discard(what)
            case _:
                return self._on_metrics(fault)

    def _on_requests(self, fault: Latency | Throttle | ServerError | LostAnswers) -> Undo:
        latency_s = fault.seconds if isinstance(fault, Latency) else 0.0
        status, retry_after_s = None, None
        if isinstance(fault, Throttle):
            status, retry_after_s = 429, fault.retry_after_seconds
        elif isinstance(fault, ServerError):
            status = fault.status
        added = self._api.add(
            verbs=fault.verbs,
            resources=fault.resources,
            latency_s=latency_s,
            status=status,
            retry_after_s=retry_after_s,
            probability=fault.probability,
            times=fault.times,
            loses=isinstance(fault, LostAnswers),
        )
        return lambda: self._api.remove(added)

    def _on_node(self, fault: NodeDeath | NodeNotReady | RejectPods) -> Undo:
        name = fault.node
        kubelet = self._fleet.kubelets.get(name)
        if kubelet is None:
            raise FaultError(f"node {name} not found")
        if isinstance(fault, NodeDeath):
            self._fleet.kill(name)
        elif isinstance(fault, NodeNotReady):
            self._fleet.unready(name)
        else:
            kubelet.refusing = True
        return lambda: self._fleet.revive(name)

    def _slow_starts(self, fault: SlowStarts) -> Undo:
        delays = self._fleet.delays
        if fault.node != "*":
            delays.slow_nodes[fault.node] = fault.factor
            return lambda: void(delays.slow_nodes.pop(fault.node, None))
        before, delays.factor = delays.factor, fault.factor
        return lambda: setattr(delays, "factor", before)

    def _on_metrics(
        self,
        fault: MetricsMissing | MetricsFrozen | MetricsAbsurd | MetricsUnavailable | MetricsAbsent,
    ) -> Undo:
        faults = self._metrics.faults
        if isinstance(fault, MetricsAbsent):
            faults.absent = True
            return lambda: setattr(faults, "absent", False)
        if isinstance(fault, MetricsUnavailable):
            faults.unavailable = True
            return lambda: setattr(faults, "unavailable", False)
        node = fault.node
        if isinstance(fault, MetricsAbsurd):
            faults.absurd[node] = fault.factor
            return lambda: void(faults.absurd.pop(node, None))
        names = faults.missing if isinstance(fault, MetricsMissing) else faults.frozen
        names.add(node)
        return lambda: names.discard(node)


def void(_: object) -> None:
    """Drop a value that an undo does not need."""
