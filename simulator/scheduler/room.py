"""Carrying out preemption: who is asked, who has to go, and what is written down."""

from __future__ import annotations

from collections.abc import Sequence

from common.cluster.records import PodRecord
from common.fit import Candidate, World
from common.kube.resources import PODS
from simulator.api import DeleteOptions, Json, condition, timestamp, with_condition
from simulator.api.errors import Conflict, NotFound
from simulator.machinery import Machinery
from simulator.scheduler.extenders import Extender
from simulator.scheduler.preemption import (
    Sacrifice,
    ask_extenders,
    candidates,
    eligible,
    least_harm,
    refusal_words,
    said,
)
from simulator.scheduler.verdicts import Diagnosis


class RoomMaker:
    """Ends pods so that a more important one finds a node."""

    def __init__(self, machinery: Machinery) -> None:
        self._m = machinery
        self._store = machinery.store

    async def make(
        self,
        world: World,
        candidate: Candidate,
        record: PodRecord,
        pod: Json,
        diagnosis: Diagnosis,
        extenders: Sequence[Extender],
    ) -> tuple[str | None, str]:
        """Return the node to promise (None: leave the promise as it is), and what to tell."""
        why_not = eligible(record, diagnosis, world.snapshot)
        if why_not:
            return None, said(why_not)
        found, tried = candidates(world, candidate, diagnosis)
        if not found:
            return "", refusal_words(diagnosis.nodes, tried)
        objects = self._objects(found)
        agreed = await ask_extenders(extenders, pod, found, world.snapshot, objects)
        chosen = least_harm(agreed)
        if chosen is None:
            return None, said("no candidate node for preemption")
        for victim in chosen.victims:
            self._end(victim, pod, chosen.node)
        return chosen.node, ""

    def _objects(self, found: Sequence[Sacrifice]) -> dict[str, Json]:
        victims = (victim for each in found for victim in each.victims)
        pods = ((v.uid, self._store.find(PODS, v.name, v.namespace)) for v in victims)
        return {uid: pod for uid, pod in pods if pod is not None}

    def _end(self, victim: PodRecord, preemptor: Json, node: str) -> None:
        name = preemptor["spec"].get("schedulerName", "default-scheduler")
        target = condition(
            "DisruptionTarget",
            "True",
            timestamp(self._m.pace.clock.now()),
            reason="PreemptionByScheduler",
            message=f"{name}: preempting to accommodate a higher priority pod",
        )
        try:
            pod = self._store.modify(
                PODS,
                victim.name,
                lambda old: with_condition(old, target),
                namespace=victim.namespace,
                status=True,
            )
            self._store.delete(
                PODS,
                victim.name,
                namespace=victim.namespace,
                options=DeleteOptions(uid=victim.uid),
            )
        except (NotFound, Conflict):
            return
        uid = preemptor["metadata"]["uid"]
        note = f"Preempted by pod {uid} on node {node}"
        self._m.recorder.tell(pod, by=name, reason="Preempted", note=note, action="Preempting")
