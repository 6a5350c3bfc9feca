# SPDX-License-Identifier: Apache-2.0
"""A move by surge: one more replica, Ready on the target, before the pod is removed.

The count of the workload is written down first (`Counted`), then raised, and lowered again
once the replacement is available and the pod is the first that its ReplicaSet would remove.
A ReplicaSet removes pods without asking a PodDisruptionBudget, so the count is lowered only
while the budget's current status allows a disruption.

Each step reads the workload from the API server and writes on the condition that nothing has
changed since. A step that is repeated after a crash finds what the earlier attempt did: the
count, and in managedFields whose it is. If another client has changed the count, theirs
stands, and nothing of ours is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from common.api.migrations import Step, StepReason, SurgeState
from common.api.objects import PodDisruptionBudget
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord
from common.cluster.workloads import budget_record
from common.kube.api import KubeApi
from common.kube.errors import FINAL, ApiError, Conflict, Forbidden, KubeError, NotFound
from common.kube.resources import PDBS
from common.null_json import UNDECODABLE, JsonDecoder
from rebalancer.evictability import Budgets
from rebalancer.migration.budgets import budget_refusal, budgets_of
from rebalancer.migration.deletion_cost import DeletionCosts, is_lowest
from rebalancer.migration.eviction import Stopped, read_pod
from rebalancer.migration.live_workload import LiveWorkload, Whose, WorkloadScaler
from rebalancer.migration.pod_marks import MarkResult
from rebalancer.migration.progress import settled
from rebalancer.migration.quotas import quota_refusal
from rebalancer.migration.surge_rules import living, workload_is_as_raised
from rebalancer.migration.verdicts import Fail, Proceed, Verdict, Wait
from rebalancer.migration.view import MigrationView
from rebalancer.refusals import Reason, Refusal

RETRY_S: Final = 1.0
SETTLE_S: Final = 2.0
"""The controller manager sees a deletion cost and a count through two watches of its own.

This long after the cost was recorded, in whole seconds, it has most likely seen it.
"""
_PDB: Final = JsonDecoder(PodDisruptionBudget)

Refuse = Callable[[], Refusal | None]


class Surge:
    """Raises and lowers the counts of workloads, for the steps of a move."""

    def __init__(self, client: KubeApi, *, settle_s: float = SETTLE_S) -> None:
        self._client = client
        self._scaler = WorkloadScaler(client)
        self.costs: Final = DeletionCosts(client)
        self._settle_s = settle_s

    async def count(self, view: MigrationView) -> Verdict:
        """Write down how many replicas the workload has, before anything is changed."""
        found = await self._read(view)
        if not isinstance(found, LiveWorkload):
            return found
        if found.unrest:
            return Wait(_changing(view, found))
        if found.replicas < 1:
            return Fail(_count_changed(view, found))
        if view.pod is not None and (full := await quota_refusal(self._client, view.pod)):
            return Fail(full)
        state = SurgeState(replicas=found.replicas)
        message = f"{named(view)} has {found.replicas} replicas"
        return Proceed(StepReason.COUNTED, message, surge=state)

    async def raise_count(self, view: MigrationView, stopped: Stopped, refuse: Refuse) -> Verdict:
        """Give the workload one more replica, unless that was done already."""
        found, state = await self._read(view), _state(view.migration)
        if not isinstance(found, LiveWorkload):
            return found
        match found.whose(state):
            case Whose.OURS:
                return _raised(StepReason.RAISED_BEFORE, state, found.metadata.generation)
            case Whose.CLAIMED | Whose.THEIRS:
                return Fail(_count_changed(view, found))
        if found.unrest:
            return Wait(_changing(view, found))
        if (refusal := refuse()) is not None:
            return Wait(refusal) if refusal.for_now() else Fail(refusal)
        # Asked last of all: reading takes time, in which moves may have been paused.
        if (why := stopped()) is not None:
            return Wait(Reason.NOT_SENT.refusal(answer=why), RETRY_S)
        sent = await self._scale(view, found, state.replicas + 1)
        # The write changes the spec, and nothing was written in between: it is the next one.
        generation = found.metadata.generation + 1
        return sent or _raised(StepReason.RAISED, state, generation)

    async def why_not_as_raised(self, view: MigrationView) -> Verdict | None:
        """Return how the workload is no longer as our raise left it; None if it is."""
        if workload_is_as_raised(view):
            return None
        found = await self._read(view)
        if not isinstance(found, LiveWorkload):
            return found
        if (ended := _ended(view, found)) is not None:
            return ended
        message = f"the watch does not show yet that {named(view)} was raised"
        return Wait(Reason.NOT_SEEN.refusal(answer=message), RETRY_S)

    async def why_not_created(self, view: MigrationView) -> Verdict | None:
        """Return why the controller cannot create the additional pod, if it says so."""
        owner = view.owner
        if owner is None:
            return None
        try:
            found = await self._scaler.read_controller(view.migration, owner.name)
        except (KubeError, *UNDECODABLE):
            return None
        if found is None or not found.creation_failure:
            return None
        return Fail(Reason.SURGE_NOT_CREATED.refusal(error=found.creation_failure))

    async def rank(self, view: MigrationView) -> Verdict:
        """Make the pod the first that its controller removes."""
        pod = view.pod
        if pod is None:
            return Wait(Reason.NOT_SEEN.refusal(answer="the pod is gone"), RETRY_S)
        for other in living(view):
            if other.uid != pod.uid and is_lowest(other):
                return Fail(Reason.COST_TAKEN.refusal(pod=other.key))
        done = await self.costs.lower(pod, view.migration.name)
        if done.result is MarkResult.DONE:
            return Proceed(StepReason.RANKED)
        refusal = Reason.COST_NOT_SET.refusal(error=done.message or "the pod is gone")
        return Fail(refusal) if done.result is MarkResult.REFUSED else Wait(refusal, RETRY_S)

    async def lower(self, view: MigrationView, stopped: Stopped) -> Verdict:
        """Lower the count again; the controller removes the pod."""
        if (early := self._too_early(view)) is not None:
            return early
        found, state = await self._read(view), _state(view.migration)
        if not isinstance(found, LiveWorkload):
            return found
        if found.whose(state) is Whose.BEFORE and not found.others():
            return Proceed(StepReason.LOWERED_BEFORE, f"{named(view)} has {state.replicas} again")
        if (ended := _ended(view, found)) is not None:
            return ended
        if not view.alive:
            return Fail(Reason.POD_GONE.refusal("surge"))
        if found.unrest:
            return Wait(_changing(view, found), RETRY_S)
        if (refusal := budget_refusal(view) or await self._budget_refusal(view)) is not None:
            return Wait(refusal) if refusal.for_now() else Fail(refusal)
        if (why := stopped()) is not None:
            return Wait(Reason.NOT_SENT.refusal(answer=why), RETRY_S)
        sent = await self._scale(view, found, state.replicas)
        message = f"{named(view)} wants {state.replicas} replicas again"
        return sent or Proceed(StepReason.LOWERED, message)

    async def removed(self, view: MigrationView) -> Verdict:
        """Return which pod the controller has removed."""
        migration, owner = view.migration, view.owner
        try:
            pod = await read_pod(self._client, migration.namespace, migration.pod_name)
        except (KubeError, *UNDECODABLE) as error:
            return Wait(Reason.NOT_SEEN.refusal(answer=str(error)), RETRY_S)
        if pod is None or pod.metadata.uid != migration.pod_uid or pod.terminating:
            return Proceed(
                StepReason.SCALED_DOWN,
                "its controller removed the pod once the replacement was available",
            )
        kind, name = migration.controller_kind, owner.name if owner is not None else ""
        if (other := _removed_instead(view)) is not None:
            reason = Reason.WRONG_POD_REMOVED.refusal(kind=kind, name=name, pod=other)
            return Fail(reason, Step.EVICTED)
        return Wait(Reason.NOT_REMOVED_YET.refusal(kind=kind, name=name), RETRY_S)

    async def undo(self, view: MigrationView) -> Wait | None:
        """Give the workload its count back after a move that failed; None once it has it."""
        migration = view.migration
        if migration.surge_replicas is None or settled(view, Step.LOWERED):
            return None
        found = await self._read(view)
        if not isinstance(found, LiveWorkload):
            # A workload that is gone needs no count.
            gone = found.reason.name == Reason.WORKLOAD_CHANGED
            return None if gone else _stays(view, found.reason)
        state = _state(migration)
        if found.whose(state) is not Whose.OURS:
            return None
        if (waits := await self._rank_replacement(view)) is not None:
            return waits
        sent = await self._scale(view, found, state.replicas)
        return None if sent is None else _stays(view, sent.reason)

    async def _rank_replacement(self, view: MigrationView) -> Wait | None:
        """Make the additional pod the one that goes, as long as the original stays.

        One that is not Ready goes first anyway.
        """
        found = view.replacement
        ready = found is not None and found.ready and not found.terminating
        if found is None or not ready or not view.alive:
            return None
        shown, done = is_lowest(found), await self.costs.lower(found, view.migration.name)
        if done.result is MarkResult.FAILED:
            return _stays(view, Reason.COST_NOT_SET.refusal(error=done.message))
        # What may not be ranked is removed or not as the controller chooses; the count is right.
        settling = done.result is MarkResult.DONE and not shown
        if not settling:
            return None
        return Wait(Reason.COST_NOT_SET.refusal("settling", pod=found.key), self._settle_s)

    def _too_early(self, view: MigrationView) -> Wait | None:
        """Wait until the watches show the deletion cost."""
        pod, ranked = view.pod, view.migration.condition(Step.RANKED)
        since_s = ranked.last_transition_time.timestamp() if ranked is not None else view.now_s
        left_s = since_s + self._settle_s - view.now_s
        if pod is None or (is_lowest(pod) and left_s <= 0):
            return None
        return Wait(Reason.COST_NOT_SET.refusal("settling", pod=pod.key), max(left_s, RETRY_S / 4))

    async def _budget_refusal(self, view: MigrationView) -> Refusal | None:
        """Ask the budgets that cover the pod as they are on the API server now."""
        pod = view.pod
        if pod is None:
            return None
        live = []
        for known in budgets_of(view):
            path = PDBS.path(namespace=known.namespace, name=known.name)
            try:
                live.append(budget_record(_PDB.decode(await self._client.get(path)), Interner()))
            except NotFound:
                continue
            except (KubeError, *UNDECODABLE) as error:
                return Reason.NOT_SENT.refusal(answer=str(error))
        return Budgets(live).refusal(pod)

    async def _read(self, view: MigrationView) -> LiveWorkload | Fail | Wait:
        try:
            found = await self._scaler.read(view.migration)
        except NotFound:
            found = None
        except Forbidden as error:
            return Fail(Reason.SCALE_FORBIDDEN.refusal(error=error.message))
        except (KubeError, *UNDECODABLE) as error:
            refusal = Reason.WORKLOAD_UNREAD.refusal(workload=named(view), error=str(error))
            return Wait(refusal, _pause_s(error))
        if found is None:
            return Fail(Reason.WORKLOAD_CHANGED.refusal("gone", workload=named(view)))
        return found

    async def _scale(
        self, view: MigrationView, found: LiveWorkload, count: int
    ) -> Wait | Fail | None:
        """Send a count; None if it was accepted. What an unclear answer means is read next."""
        try:
            await self._scaler.scale(view.migration, found, count)
        except Conflict as error:
            return Wait(Reason.SCALE_UNSURE.refusal(error=str(error)), RETRY_S / 4)
        except FINAL as error:
            return Fail(Reason.SCALE_FORBIDDEN.refusal(error=str(error)))
        except KubeError as error:
            return Wait(Reason.SCALE_UNSURE.refusal(error=str(error)), _pause_s(error))
        return None


def named(view: MigrationView) -> str:
    """Return what users call the workload."""
    return f"{view.migration.workload_kind} {view.migration.workload_name}"


def _pause_s(error: Exception) -> float:
    asked_s = error.retry_after_s if isinstance(error, ApiError) else None
    return max(RETRY_S, asked_s or 0.0)


def _state(migration: MigrationRecord) -> SurgeState:
    return SurgeState(replicas=migration.surge_replicas or 0, generation=migration.surge_generation)


def _raised(reason: StepReason, state: SurgeState, generation: int) -> Proceed:
    count = state.replicas + 1
    left = SurgeState(replicas=state.replicas, generation=generation)
    return Proceed(reason, f"the count was raised from {state.replicas} to {count}", surge=left)


def _ended(view: MigrationView, found: LiveWorkload) -> Fail | None:
    """Return why a surge whose raise was recorded cannot go on."""
    state = _state(view.migration)
    match found.whose(state):
        case Whose.BEFORE:
            reason = Reason.RAISE_REVERTED.refusal(workload=named(view), count=found.replicas)
            return Fail(reason, Step.LOWERED)
        case Whose.CLAIMED | Whose.THEIRS:
            return Fail(_count_changed(view, found), Step.LOWERED)
    if found.metadata.generation != state.generation:
        return Fail(Reason.WORKLOAD_CHANGED.refusal(workload=named(view)), Step.LOWERED)
    return None


def _count_changed(view: MigrationView, found: LiveWorkload) -> Refusal:
    state = _state(view.migration)
    if state.replicas and found.whose(state) is Whose.CLAIMED:
        return Reason.COUNT_CHANGED.refusal("claimed", workload=named(view), manager=found.others())
    return Reason.COUNT_CHANGED.refusal(workload=named(view), count=found.replicas)


def _changing(view: MigrationView, found: LiveWorkload) -> Refusal:
    return Reason.WORKLOAD_NOT_AT_REST.refusal(workload=named(view), unrest=found.unrest)


def _stays(view: MigrationView, reason: Refusal) -> Wait:
    refusal = Reason.RAISE_STAYS.refusal(workload=named(view), error=reason.message)
    return Wait(refusal, RETRY_S)


def _removed_instead(view: MigrationView) -> str | None:
    """Return the pod that went although it should have stayed; None while that is open."""
    owner, migration = view.owner, view.migration
    wanted = migration.surge_replicas
    if owner is None or wanted is None:
        return None
    seen = owner.observed_generation >= owner.generation and owner.desired == wanted
    pods = living(view)
    if not seen or owner.current > wanted or len(pods) > wanted:
        return None
    if migration.pod_uid not in {pod.uid for pod in pods}:
        return None
    found = view.replacement
    lost = found is None or found.terminating
    return f"{migration.namespace}/{migration.replacement_pod}" if lost else "another pod"
