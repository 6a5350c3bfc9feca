# SPDX-License-Identifier: Apache-2.0
"""Whether pods start: why one does not, and which nodes start none.

A node that cannot start pods is empty, and would be the favorite target of every plan. The
evidence against it is read from the cluster and from finished Migrations, so that a restart or a
new leader knows the same: pods on it whose containers do not start, and moves to it whose
replacements did not. A pod that was scheduled there later and is Ready proves the opposite.

A tenant must not be able to close nodes to all others with an image that is bad everywhere. So a
pod counts alone only if its image, or a pod of its workload, runs on another node; otherwise pods
of two namespaces must fail. And failures of one namespace alone count only as long as they are on
at most half of the nodes: beyond that its pods are at fault.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from common.api.migrations import Phase, Step
from common.cache.snapshot import NodeView, Snapshot
from common.cluster.container_states import StalledContainer
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord
from rebalancer.refusals import Reason, Refusal, reported

CREATING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""What a kubelet reports before it has tried (pkg/kubelet/kubelet_pods.go)."""
OF_THE_NODE: Final = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "ImageInspectError",
        "CreatePodSandboxError",
        "ConfigPodSandboxError",
        "CreateContainerError",
        "RunContainerError",
        "UnexpectedAdmissionError",
        "NodeShutdown",
    }
)
"""Reasons for which a node can be at fault: pkg/kubelet/images/types.go, container/sync_result.go,
kuberuntime/kuberuntime_container.go, lifecycle/predicate.go and nodeshutdown. What only a pod's own
spec or program can bring about, as CreateContainerConfigError, InvalidImageName and
CrashLoopBackOff, says nothing about a node."""
NOT_STARTED: Final = frozenset({Reason.DEADLINE_EXCEEDED, Reason.REPLACEMENT_LOST})
"""How a move fails whose replacement was on a node; a move that was called off proves nothing."""
STUCK_S: Final = 300.0
"""Containers that are being created for this long are stuck: a network, a volume, a runtime."""

_CODE: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,127}", re.ASCII)
_IMAGE_CHARACTERS: Final = 200
_ENOUGH: Final = 2


def why_not_started(pod: PodRecord) -> Refusal:
    """Return why a pod is not Ready, by the reason that its kubelet or scheduler gives."""
    if pod.finished:
        code = _code(pod.end_reason, f"Pod{pod.phase}")
        return reported(code, f"{pod.key} ended on {pod.node} before it was Ready")
    if not pod.node:
        return _unplaced(pod)
    if not pod.stalled:
        return Reason.NOT_READY.refusal("pod", pod=pod.key, node=pod.node)
    found = _most_telling(pod.stalled)
    code = _code(found.reason, "ContainerCreating")
    image = f", image {_printable(found.image)}" if found.image else ""
    message = f"container {found.name} of {pod.key} on {pod.node} does not run ({code}{image})"
    return reported(code, message)


def _unplaced(pod: PodRecord) -> Refusal:
    if pod.unschedulable:
        return Reason.UNSCHEDULABLE.refusal(pod=pod.key)
    if pod.shape.gates:
        return Reason.SCHEDULING_GATED.refusal(pod=pod.key, gate=pod.shape.gates[0])
    return Reason.NOT_SCHEDULED.refusal(pod=pod.key)


def _most_telling(stalled: Sequence[StalledContainer]) -> StalledContainer:
    """Return the first that failed; containers behind an init container only wait."""
    return next((s for s in stalled if s.reason and s.reason not in CREATING), stalled[0])


def _code(reason: str, other: str) -> str:
    """Return a reason if the API server accepts it as the reason of a condition."""
    return reason if _CODE.fullmatch(reason) else other


def _printable(text: str) -> str:
    """Return an image that is safe to print: the API server accepts any characters."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:_IMAGE_CHARACTERS])
    return f"{shown}…" if len(text) > _IMAGE_CHARACTERS else shown


class StartFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that did not start on a node."""

    namespace: str
    pod: str
    reason: str
    since_s: float
    """When it was scheduled there: a pod that came later and is Ready clears the node."""
    runs_on: NodeName | None = None
    """Another node where the same runs; then this failure counts alone."""

    @property
    def message(self) -> str:
        runs = f", and the same runs on {self.runs_on}" if self.runs_on else ""
        return f"{self.pod} did not start ({self.reason}){runs}"


def starts_no_pods(node: NodeName, snapshot: Snapshot, *, now_s: float) -> Refusal | None:
    """Return why pods do not start on a node now, regardless of earlier moves."""
    if not any(pod.node == node for pod in snapshot.stalled.values()):
        return None
    return start_failures(snapshot, now_s=now_s, cooldown_s=0.0).get(node)


def start_failures(
    snapshot: Snapshot, *, now_s: float, cooldown_s: float
) -> Mapping[NodeName, Refusal]:
    """Return the nodes that start no pods, each with the reason against it as a target."""
    found = _collected(snapshot, now_s, cooldown_s)
    closed = {name: _against(failures) for name, failures in found.items()}
    blamed = {name: failures for name, failures in closed.items() if failures}
    spared = _too_common(blamed, len(snapshot.nodes))
    return {
        name: _starts_no_pods(failures)
        for name, failures in blamed.items()
        if {f.namespace for f in failures} - spared
    }


def _collected(
    snapshot: Snapshot, now_s: float, cooldown_s: float
) -> dict[NodeName, list[StartFailure]]:
    """Return what failed on each node since a pod last started there."""
    found: dict[NodeName, list[StartFailure]] = defaultdict(list)
    pods = [
        pod
        for pod in snapshot.stalled.values()
        if pod.node in snapshot.nodes and _at_fault(pod, now_s)
    ]
    running = _where_running(snapshot, {_most_telling(pod.stalled).image for pod in pods})
    for pod in pods:
        found[pod.node].append(_failed_pod(pod, running))
    for migration in snapshot.migrations.values():
        if _counts(migration, snapshot, now_s, cooldown_s):
            found[migration.replacement_node].append(_failed_move(migration, snapshot))
    for name, failures in found.items():
        started_s = _last_start_s(snapshot.nodes[name])
        found[name] = [f for f in failures if f.since_s >= started_s]
    return found


def _at_fault(pod: PodRecord, now_s: float) -> bool:
    """Tell whether a node may be why this pod does not start."""
    reason = _most_telling(pod.stalled).reason
    return reason in OF_THE_NODE or (reason in CREATING and now_s - pod.placed_s >= STUCK_S)


def _where_running(snapshot: Snapshot, images: Collection[str]) -> dict[str, list[NodeName]]:
    """Return up to two nodes for each of these images where containers with it run.

    Of two nodes, one is another than the node in question.
    """
    found: dict[str, list[NodeName]] = {image: [] for image in images}
    open_, named = set(images), dict[int, tuple[str, ...]]()
    for name, view in snapshot.nodes.items():
        if not open_:
            break
        for pod in view.pods.values():
            # Shapes are interned, and comparing ids is faster than comparing them.
            shape = pod.shape
            if id(shape) not in named:
                named[id(shape)] = tuple(image for image in shape.images if image in found)
            for image in named[id(shape)]:
                if image in open_ and name not in found[image] and _runs(pod, image):
                    found[image].append(name)
                    if len(found[image]) == _ENOUGH:
                        open_.discard(image)
    return found


def _runs(pod: PodRecord, image: str) -> bool:
    running = pod.ready if pod.running_containers is None else pod.running_containers > 0
    return running and all(each.image != image for each in pod.stalled)


def _failed_pod(pod: PodRecord, running: Mapping[str, Sequence[NodeName]]) -> StartFailure:
    stalled = _most_telling(pod.stalled)
    others = (name for name in running.get(stalled.image, ()) if name != pod.node)
    # A container that is being created may wait for a volume of its own, so that its image
    # runs elsewhere proves nothing.
    proven = stalled.reason in OF_THE_NODE
    return StartFailure(
        namespace=pod.namespace,
        pod=pod.key,
        reason=stalled.reason,
        since_s=pod.placed_s,
        runs_on=next(others, None) if proven else None,
    )


def _counts(
    migration: MigrationRecord, snapshot: Snapshot, now_s: float, cooldown_s: float
) -> bool:
    """Tell whether a move failed lately because its replacement did not start in time."""
    began = migration.evicted_s is not None or migration.raised_s is not None
    if migration.phase != Phase.FAILED or not began:
        return False
    if migration.message.partition(":")[0] not in NOT_STARTED:
        return False
    replacement = snapshot.pods.get(migration.replacement_uid)
    if migration.replacement_node not in snapshot.nodes or (replacement and replacement.ready):
        return False
    ended_s = migration.created_s if migration.finished_s is None else migration.finished_s
    return not migration.done(Step.READY) and now_s - ended_s < cooldown_s


def _failed_move(migration: MigrationRecord, snapshot: Snapshot) -> StartFailure:
    noted = migration.condition(Step.READY)
    reason = noted.reason if noted is not None else Reason.NOT_READY
    at_fault = reason in OF_THE_NODE or reason in CREATING
    return StartFailure(
        namespace=migration.namespace,
        pod=f"{migration.namespace}/{migration.replacement_pod}",
        reason=reason,
        since_s=migration.evicted_s or migration.created_s,
        runs_on=_sibling_on(migration, snapshot) if at_fault else None,
    )


def _sibling_on(migration: MigrationRecord, snapshot: Snapshot) -> NodeName | None:
    """Return another node where a pod of the same controller is Ready."""
    controller = migration.controller_id
    siblings = snapshot.by_owner[controller].values() if controller is not None else ()
    nodes = {pod.node for pod in siblings if pod.ready and not pod.terminating}
    return min(nodes - {migration.replacement_node}, default=None)


def _last_start_s(view: NodeView) -> float:
    """Return when the latest pod was scheduled of those that started."""
    started = (pod.placed_s for pod in view.pods.values() if pod.ready and not pod.mirror)
    return max(started, default=0.0)


def _against(failures: Iterable[StartFailure]) -> list[StartFailure]:
    """Return the failures that close a node; none if the pods themselves may be at fault."""
    found = sorted(failures, key=lambda f: (f.runs_on is None, f.namespace, f.pod))
    several = len({f.namespace for f in found}) > 1
    return [f for f in found if several or f.runs_on is not None]


def _too_common(blamed: Mapping[NodeName, Sequence[StartFailure]], nodes: int) -> frozenset[str]:
    """Return the namespaces that alone would close more than half of the nodes."""
    alone: dict[str, int] = defaultdict(int)
    for failures in blamed.values():
        namespaces = {f.namespace for f in failures}
        if len(namespaces) == 1:
            alone[namespaces.pop()] += 1
    return frozenset(name for name, count in alone.items() if 2 * count > nodes)


def _starts_no_pods(failures: Sequence[StartFailure]) -> Refusal:
    """Name what closes the node: one failure that counts alone, or those of two namespaces."""
    first = failures[0]
    shown = [first]
    if first.runs_on is None:
        shown += [f for f in failures if f.namespace != first.namespace][:1]
    return Reason.STARTS_NO_PODS.refusal(failures="; ".join(f.message for f in shown))
