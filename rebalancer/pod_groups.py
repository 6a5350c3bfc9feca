# SPDX-License-Identifier: Apache-2.0
"""How many pods of a group run, and how many of them may leave at once.

kube-scheduler starts a gang when `minCount` of its pods can be placed; what the pods do together
needs as many of them running. A pod may leave as long as the others are enough without it. What is
not known is refused: whether a group exists, what it needs, or where all of it has to be.

The same numbers are judged three times: by a gate when a plan is made, by a limit for all moves
that run at once, and by a check right before an eviction is sent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from common.cache.snapshot import Snapshot
from common.cluster.pod_groups import PodGroupRecord
from common.cluster.records import PodRecord, PodUid
from rebalancer.refusals import Reason, Refusal

GroupKey = tuple[str, str]


class PodGroups:
    """The groups of one snapshot; the pods of a namespace are counted when one is asked about."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._members: dict[str, dict[str, set[PodUid]]] = {}
        """The ready pods of each group, by namespace."""

    def refusal(self, pod: PodRecord, leaving: Iterable[PodUid] = ()) -> Refusal | None:
        """Return why a pod may not leave its group, with others that `leaving` names."""
        name = pod.shape.pod_group
        if not name:
            return None
        record = self._record(pod)
        if record is None:
            return Reason.POD_GROUP_UNKNOWN.refusal(group=name)
        if record.whole:
            return Reason.POD_GROUP_WHOLE.refusal(group=name)
        if record.topology:
            return Reason.POD_GROUP_WHOLE.refusal("topology", group=name, key=record.topology)
        others = len(self._running(pod) - {pod.uid}.union(leaving))
        if others >= record.minimum:
            return None
        return Reason.POD_GROUP_MINIMUM.refusal(group=name, others=others, minimum=record.minimum)

    def key_of(self, uid: PodUid) -> GroupKey | None:
        """Return the gang in which a pod runs; None for one that its gang does not count."""
        pod = self._snapshot.pods.get(uid)
        if pod is None or not pod.shape.pod_group:
            return None
        record = self._record(pod)
        counts = record is not None and record.minimum and uid in self._running(pod)
        return (pod.namespace, pod.shape.pod_group) if counts else None

    def spare(self, key: GroupKey) -> int:
        """Return how many running pods a gang can do without."""
        record = self._snapshot.pod_groups.get("/".join(key))
        running = self._in_namespace(key[0]).get(key[1], ())
        return max(len(running) - record.minimum, 0) if record is not None else 0

    def _record(self, pod: PodRecord) -> PodGroupRecord | None:
        return self._snapshot.pod_groups.get(f"{pod.namespace}/{pod.shape.pod_group}")

    def _running(self, pod: PodRecord) -> set[PodUid]:
        return self._in_namespace(pod.namespace).get(pod.shape.pod_group, set())

    def _in_namespace(self, namespace: str) -> dict[str, set[PodUid]]:
        found = self._members.get(namespace)
        if found is None:
            found = self._members[namespace] = {}
            for pod in self._snapshot.by_namespace[namespace].values():
                if pod.shape.pod_group and pod.ready and not (pod.terminating or pod.finished):
                    found.setdefault(pod.shape.pod_group, set()).add(pod.uid)
        return found
