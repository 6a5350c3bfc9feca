# SPDX-License-Identifier: Apache-2.0
"""The Deployment controller: one ReplicaSet per template, and rollouts between them.

Follows pkg/controller/deployment of v1.36; the arithmetic is in `rollouts`. ReplicaSets
without an owner are not adopted, and a stalled rollout has no progress deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.kube.resources import DEPLOYMENTS, PODS, REPLICASETS
from simulator.api import Change, EventType, Json, timestamp
from simulator.context import Context
from simulator.controllers.controller import Controller, Key, key_of, template_hash
from simulator.controllers.deployment_status import deployment_status
from simulator.controllers.owned_pods import (
    controller_of,
    is_terminating,
    owned,
    owner_reference,
    pods_of,
)
from simulator.controllers.rollouts import (
    Rollout,
    SetView,
    Sizes,
    fenceposts,
    first_size,
    next_sizes,
    proportional,
)

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MOST: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset(
    {REVISION, DESIRED, MOST, "kubectl.kubernetes.io/last-applied-configuration"}
)
_NAME: Final = "deployment-controller"


class DeploymentController(Controller):
    """Rolls Deployments out."""

    def __init__(self, context: Context) -> None:
        super().__init__(_NAME, DEPLOYMENTS, context)
        self._store.subscribe(REPLICASETS, self._on_owned)
        self._store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        """Sync after a pod is gone: Recreate waits for that, and ReplicaSets do not show it."""
        reference = controller_of(change.obj) if change.type is EventType.DELETED else None
        if reference is not None and reference["kind"] == "ReplicaSet":
            namespace = change.obj["metadata"]["namespace"]
            replica_set = self._store.find(REPLICASETS, reference["name"], namespace)
            if replica_set is not None:
                self._wake_owner(replica_set)

    def sync(self, key: Key) -> None:
        """Sync one Deployment."""
        namespace, name = key
        deployment = self._store.find(DEPLOYMENTS, name, namespace)
        if deployment is None:
            return
        if not is_terminating(deployment):
            self._roll(deployment)
        self._report(deployment)

    def _roll(self, deployment: Json) -> None:
        sets = list(owned(self._store, deployment, REPLICASETS))
        new, old = _split(deployment, sets)
        rollout = rollout_of(deployment)
        views = [self._view(each) for each in old]
        if deployment["spec"].get("paused") or _is_scaled(deployment, sets):
            self._resize(
                deployment, rollout, proportional(rollout, self._view(new) if new else None, views)
            )
            return
        if new is None:
            blocked = rollout.recreate and any(view.replicas or view.pods for view in views)
            if not blocked:
                self._create_set(deployment, old, rollout, views)
                return
            self._resize(deployment, rollout, {view.name: 0 for view in views if view.replicas})
            return
        self._set_revision(deployment, new, old)
        self._resize(deployment, rollout, next_sizes(rollout, self._view(new), views))
        self._forget_history(deployment, old)

    def _view(self, replica_set: Json) -> SetView:
        status = replica_set.get("status") or {}
        return SetView(
            name=replica_set["metadata"]["name"],
            replicas=replica_set["spec"]["replicas"],
            available=status.get("availableReplicas", 0),
            pods=sum(1 for _ in pods_of(self._store, replica_set)),
            created=_revision(replica_set),
        )

    def _create_set(
        self,
        deployment: Json,
        old: Sequence[Json],
        rollout: Rollout,
        views: Sequence[SetView],
    ) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        status = deployment.get("status") or {}
        word = template_hash(spec["template"], status.get("collisionCount", 0))
        revision = max(map(_revision, old), default=0) + 1
        replicas = first_size(rollout, views)
        template = _labelled(spec["template"], word)
        replica_set = {
            "metadata": {
                "name": f"{metadata['name']}-{word}",
                "namespace": metadata["namespace"],
                "labels": template["metadata"]["labels"],
                "annotations": {**_copied(deployment), **_noted(rollout), REVISION: str(revision)},
                "ownerReferences": [owner_reference(deployment, DEPLOYMENTS)],
            },
            "spec": {
                "replicas": replicas,
                "minReadySeconds": spec.get("minReadySeconds", 0),
                "selector": _narrowed(spec["selector"], word),
                "template": template,
            },
        }
        made = self._store.create(REPLICASETS, replica_set)
        self._set_revision(deployment, made, old)
        if replicas:
            self._record(deployment, made, 0, replicas)

    def _resize(self, deployment: Json, rollout: Rollout, sizes: Sizes) -> None:
        namespace = deployment["metadata"]["namespace"]
        for name, size in sizes.items():
            before = self._store.get(REPLICASETS, name, namespace)
            self._give_size(name, namespace, size, rollout)
            self._record(deployment, before, before["spec"]["replicas"], size)
        for replica_set in owned(self._store, deployment, REPLICASETS):
            # The replicas that each set was scaled for; a later difference means a new scaling.
            annotations = replica_set["metadata"].get("annotations") or {}
            stale = annotations.get(DESIRED) != str(rollout.replicas)
            if stale and replica_set["spec"]["replicas"] > 0:
                size = replica_set["spec"]["replicas"]
                self._give_size(replica_set["metadata"]["name"], namespace, size, rollout)

    def _give_size(self, name: str, namespace: str, size: int, rollout: Rollout) -> None:
        self._store.modify(
            REPLICASETS, name, lambda old: _sized(old, size, rollout), namespace=namespace
        )

    def _set_revision(self, deployment: Json, new: Json, old: Sequence[Json]) -> None:
        namespace, name = key_of(deployment)
        revision = max(max(map(_revision, old), default=0) + 1, _revision(new))
        if _revision(new) != revision:
            self._store.modify(
                REPLICASETS,
                new["metadata"]["name"],
                lambda obj: _annotated(obj, {REVISION: str(revision)}),
                namespace=namespace,
            )
        if (deployment["metadata"].get("annotations") or {}).get(REVISION) != str(revision):
            # Through the status, as the real controller does: the generation does not change.
            self._store.modify(
                DEPLOYMENTS,
                name,
                lambda obj: _annotated(obj, {REVISION: str(revision)}),
                namespace=namespace,
                status=True,
            )

    def _forget_history(self, deployment: Json, old: Sequence[Json]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit", 10)
        idle = [
            each
            for each in sorted(old, key=_revision)
            if not each["spec"]["replicas"] and not (each.get("status") or {}).get("replicas")
        ]
        for each in idle[: max(0, len(old) - limit)]:
            namespace, name = key_of(each)
            self._store.delete(REPLICASETS, name, namespace=namespace)

    def _report(self, deployment: Json) -> None:
        namespace, name = key_of(deployment)
        current = self._store.find(DEPLOYMENTS, name, namespace)
        if current is None:
            return
        sets = list(owned(self._store, current, REPLICASETS))
        new, _ = _split(current, sets)
        rollout = rollout_of(current)
        status = deployment_status(
            current, sets, new, rollout.max_unavailable, timestamp(self._time_scale.clock.now())
        )
        if status != current.get("status"):
            self._store.modify(
                DEPLOYMENTS,
                name,
                lambda obj: {**obj, "status": status},
                namespace=namespace,
                status=True,
            )

    def _record(self, deployment: Json, replica_set: Json, before: int, after: int) -> None:
        way = "up" if after > before else "down"
        name = replica_set["metadata"]["name"]
        self._recorder.record(
            deployment,
            by=_NAME,
            reason="ScalingReplicaSet",
            note=f"Scaled {way} replica set {name} from {before} to {after}",
            action="Scale",
        )


def rollout_of(deployment: Json) -> Rollout:
    """Return the rollout parameters of a Deployment."""
    spec = deployment["spec"]
    strategy, replicas = spec.get("strategy") or {}, spec["replicas"]
    if strategy.get("type") == "Recreate":
        return Rollout(replicas, recreate=True)
    rolling = strategy.get("rollingUpdate") or {}
    surge, unavailable = rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%")
    return Rollout(replicas, *fenceposts(surge, unavailable, replicas))


def _split(deployment: Json, sets: Sequence[Json]) -> tuple[Json | None, list[Json]]:
    """Return the set of the current template, if there is one, and the others."""
    wanted = deployment["spec"]["template"]
    matching = [each for each in sets if _unlabelled(each["spec"]["template"]) == wanted]
    new = min(matching, key=lambda each: int(each["metadata"]["resourceVersion"]), default=None)
    return new, [each for each in sets if each is not new]


def _is_scaled(deployment: Json, sets: Sequence[Json]) -> bool:
    """Return whether the replicas changed since the sets were last scaled."""
    wanted = str(deployment["spec"]["replicas"])
    return any(
        each["spec"]["replicas"] > 0
        and (each["metadata"].get("annotations") or {}).get(DESIRED, wanted) != wanted
        for each in sets
    )


def _labelled(template: Json, word: str) -> Json:
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: word}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _unlabelled(template: Json) -> Json:
    metadata = template.get("metadata") or {}
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _narrowed(selector: Json, word: str) -> Json:
    return {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: word}}


def _copied(deployment: Json) -> Json:
    annotations = deployment["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if key not in _NOT_COPIED}


def _noted(rollout: Rollout) -> Json:
    return {DESIRED: str(rollout.replicas), MOST: str(rollout.replicas + rollout.max_surge)}


def _sized(replica_set: Json, size: int, rollout: Rollout) -> Json:
    sized = {**replica_set, "spec": {**replica_set["spec"], "replicas": size}}
    return _annotated(sized, _noted(rollout))


def _annotated(obj: Json, more: Json) -> Json:
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), **more}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def _revision(obj: Json) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdecimal() else 0
