# SPDX-License-Identifier: Apache-2.0
"""What each step of a move does to the cluster.

A step runs again until it is recorded as done, so its effect may exist already and must not
happen twice. It returns a verdict, which the controller records. What is refused for good
fails the move, anything else waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from common.api.migrations import Phase, Purpose, Step, StepReason
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord, PodUid
from common.config import RebalancerConfiguration
from common.kube.errors import KubeError
from common.null_json import UNDECODABLE
from common.runtime import Runtime
from rebalancer.migration import replacements
from rebalancer.migration.budgets import budget_refusal, has_temporary_pdb
from rebalancer.migration.collaborators import Actuators, Preconditions
from rebalancer.migration.eviction import Answer, LivePod, Result, Victim, read_pod
from rebalancer.migration.pod_marks import MarkAttempt, MarkResult, PodMeta, marks_before
from rebalancer.migration.progress import holds_raise, settled
from rebalancer.migration.reporting import Reporter
from rebalancer.migration.state_machine import landed, succeeded
from rebalancer.migration.surge_rules import unavailable_s
from rebalancer.migration.timing import EvictionBackoff, Timing, evict_before_s
from rebalancer.migration.verdicts import Fail, Proceed, Verdict, Wait
from rebalancer.migration.view import MigrationView
from rebalancer.pacing.extenders import Asked
from rebalancer.refusals import Reason, Refusal

_SUCCEEDED: Final = "Succeeded"
_AGAIN_S: Final = 0.1
"""Until a move looks again whose replacement another move has just claimed."""


class StepRunner:
    """Runs the steps of Migrations; all of them together are `STEPS`."""

    def __init__(
        self,
        preconditions: Preconditions,
        actuators: Actuators,
        reporter: Reporter,
        *,
        config: Callable[[], RebalancerConfiguration],
        timing: Timing,
        runtime: Runtime,
    ) -> None:
        self._preconditions = preconditions
        self._pacing = preconditions.pacing
        self._actuators = actuators
        self._reporter = reporter
        self._config = config
        self._timing = timing
        self._clock = runtime.clock
        self._backoff = EvictionBackoff(timing, runtime.clock, runtime.rng)
        self._first_seen: dict[str, int] = {}
        self._guides_since_s: dict[str, float] = {}
        self._mark_attempts: Counter[tuple[str, Step]] = Counter()
        self.claims: Final[dict[str, PodUid]] = {}
        """Replacements that were chosen, by Migration: two moves must not record the same."""

    def remember(self, migration: MigrationRecord) -> None:
        """Remember the first version of a Migration that was seen: extenders must know it."""
        # Later versions change only the status; waiting for them would never end, because each
        # step writes one.
        self._first_seen.setdefault(migration.uid, migration.resource_version)
        if migration.guides:
            self._guides_since_s.setdefault(migration.uid, self._clock.monotonic())

    def forget(self, migration: MigrationRecord) -> None:
        """Drop everything about a Migration that has ended."""
        self._first_seen.pop(migration.uid, None)
        self._guides_since_s.pop(migration.uid, None)
        self.claims.pop(migration.name, None)
        for step in (Step.MARKED, Step.READY, Step.RANKED, Step.CLEANED_UP):
            self._mark_attempts.pop((migration.name, step), None)
        self._backoff.forget(migration)

    async def check(self, view: MigrationView) -> Verdict:
        """Ask limits, switches, gates and PodDisruptionBudgets whether the move may begin."""
        if (early := self._too_early(view)) is not None:
            return early
        refusal = self._why_not(view, budget_refusal(view))
        if refusal is not None:
            return _refused(refusal)
        if trying := self._pacing.trying(view.migration):
            return Proceed(trying, "the circuit breaker lets it try whether moves succeed again")
        return Proceed(StepReason.ALLOWED, "limits, gates and PodDisruptionBudgets allow it")

    async def mark(self, view: MigrationView) -> Verdict:
        """Mark the pod; after some failures go on without marks."""
        migration = view.migration
        done = await self._actuators.marker.mark(migration)
        if done.result is MarkResult.DONE:
            return Proceed(StepReason.MARKED)
        if done.result is MarkResult.FAILED and self._mark_again(migration, Step.MARKED):
            return self._mark_failed(Reason.MARK_FAILED.refusal(error=done.message))
        self._reporter.mark_refused(migration, done.message or "the pod does not exist")
        return Proceed(StepReason.MARK_REFUSED, done.message)

    async def acknowledge(self, view: MigrationView) -> Verdict:
        """Wait until every live extender, or the API server, knows the Migration."""
        if view.migration.guides and (early := self._too_early_to_guide(view.migration)):
            return early
        refusal = self._not_acknowledged(view)
        if refusal is None:
            version = self._first_seen[view.migration.uid]
            known = f"extenders know resourceVersion {version}"
            if view.migration.guides:
                known = "the API servers have had time to learn where its replacement belongs"
            return Proceed(StepReason.ACKNOWLEDGED, known)
        return self._soon(refusal) if refusal.for_now() else Fail(refusal)

    async def protect(self, view: MigrationView) -> Verdict:
        """Make sure that a temporary PDB protects the workload, if it needs one."""
        return await self._actuators.temporary_pdbs.protect(view)

    async def count(self, view: MigrationView) -> Verdict:
        """Surge: write down how many replicas the workload has."""
        return await self._actuators.surge.count(view)

    async def raise_count(self, view: MigrationView) -> Verdict:
        """Surge: ask all gates and extenders once more, then raise the count."""
        besides = budget_refusal(view) or self._not_acknowledged(view)
        return await self._actuators.surge.raise_count(
            view,
            lambda: self._stopped(view.migration),
            lambda: self._why_not(view, besides),
        )

    async def rank(self, view: MigrationView) -> Verdict:
        """Surge: make the pod the first that its controller removes."""
        surge = self._actuators.surge
        return await surge.why_not_as_raised(view) or await surge.rank(view)

    async def lower(self, view: MigrationView) -> Verdict:
        """Surge: lower the count again."""
        return await self._actuators.surge.lower(view, lambda: self._switched_off(view.migration))

    async def evict(self, view: MigrationView) -> Verdict:
        """Ask all gates and extenders once more, then evict.

        An extender may have come back that knows less than those which acknowledged. A pod
        that the watch does not show alive is only checked: gates cannot judge what they do
        not see.
        """
        if settled(view, Step.LOWERED):
            return await self._actuators.surge.removed(view)
        if (paused := self._backoff.remaining(view)) is not None:
            return paused
        if view.alive and (early := self._too_early(view)) is not None:
            return early
        besides = budget_refusal(view) or self._not_acknowledged(view)
        if view.alive and (refusal := self._why_not(view, besides)) is not None:
            return _refused(refusal)
        if view.alive and (unprotected := await self._protect_again(view)) is not None:
            return unprotected
        # The checks above are some requests old by now; the driver asks `_stopped` last of all.
        answer = await self._attempt(view)
        self._reporter.eviction_answered(answer.result)
        verdict = self._judge(view, answer)
        if isinstance(verdict, Wait) and view.late:
            return Fail(Reason.DEADLINE_EXCEEDED.refusal(cause=answer.message))
        if isinstance(verdict, Wait):
            by_budget = answer.result is Result.BUDGET
            early_s = self._timing.pdb_backoff_min_s if by_budget else None
            self._backoff.pause(view, verdict, early_s)
        return verdict

    async def _protect_again(self, view: MigrationView) -> Verdict | None:
        """Create a temporary PDB again that expired before the eviction."""
        found = view.migration.condition(Step.PROTECTED)
        if found is None or found.reason != StepReason.TEMPORARY_PDB or has_temporary_pdb(view):
            return None
        verdict = await self._actuators.temporary_pdbs.protect(view)
        return None if isinstance(verdict, Proceed) else verdict

    async def _attempt(self, view: MigrationView) -> Answer:
        victim, driver = self._victim(view.migration), self._actuators.eviction
        if not view.alive:
            return await driver.check(victim)
        return await driver.evict(victim, lambda: self._stopped(view.migration))

    def _stopped(self, migration: MigrationRecord) -> str | None:
        if self._clock.now() >= evict_before_s(migration):
            return "too little time is left before the deadline"
        return self._switched_off(migration)

    def _switched_off(self, migration: MigrationRecord) -> str | None:
        if not self._preconditions.is_leader():
            return "this process is no longer the leader"
        refusal = self._pacing.stopped(migration)
        return None if refusal is None else f"{refusal.name}: {refusal.message}"

    async def replace(self, view: MigrationView) -> Verdict:
        """Record the replacement; the copy of a bare pod is created first."""
        if view.bare:
            made = await self._actuators.bare_pods.replace(
                view, lambda: self._stopped(view.migration)
            )
            if not isinstance(made, Proceed):
                return made
        if (changed := await self._why_not_as_raised(view)) is not None:
            return changed
        found = replacements.candidate(view)
        if found is not None and self._claims(view, found):
            return Proceed(StepReason.FOUND, f"{found.key} on {found.node}")
        if holds_raise(view) and not replacements.newcomers(view):
            failed = await self._actuators.surge.why_not_created(view)
            return failed or Wait(Reason.NO_REPLACEMENT_YET.refusal())
        return Wait(Reason.REPLACEMENT_PENDING.refusal(), _AGAIN_S if found is not None else None)

    def _claims(self, view: MigrationView, pod: PodRecord) -> bool:
        """Claim a pod for a Migration; False if another was faster since the view was made."""
        mine, moves = view.migration.name, view.snapshot.migrations
        for name in [name for name, uid in self.claims.items() if uid == pod.uid and name != mine]:
            other = moves.get(name)
            if other is not None and not other.replacement_uid:
                return False
        self.claims[mine] = pod.uid
        return True

    async def _why_not_as_raised(self, view: MigrationView) -> Verdict | None:
        return await self._actuators.surge.why_not_as_raised(view) if holds_raise(view) else None

    async def ready(self, view: MigrationView) -> Verdict:
        """Return where the replacement runs, or that it is lost."""
        if (changed := await self._why_not_as_raised(view)) is not None:
            return changed
        found = view.replacement
        if found is None or found.terminating:
            return await self._missing(view)
        if not found.ready:
            return Wait(Reason.REPLACEMENT_NOT_READY.refusal(pod=found.key))
        left_s = unavailable_s(view, found) if holds_raise(view) else 0.0
        if left_s is not None and left_s > 0:
            reason = Reason.REPLACEMENT_NOT_READY.refusal("available", pod=found.key, left=left_s)
            return Wait(reason, left_s)
        # The API server sets PodScheduled with the binding (pkg/registry/core/pod/storage).
        bound_s = found.placed_s
        asked = self._pacing.asked(view.migration, found, bound_s)
        in_time = view.now_s < bound_s + self._guidance_s(view.migration)
        if asked is Asked.PENDING and in_time and not view.late:
            return self._soon(Reason.GUIDANCE_UNKNOWN.refusal())
        return landed(view, found, asked)

    async def clean_up(self, view: MigrationView) -> Verdict:
        """Undo what a move leaves behind, as far as the pod has stayed."""
        migration = view.migration
        if migration.surge and (raised := await self._undo_surge(view)) is not None:
            return raised
        stays = migration.evicted_s is None
        if stays and (waits := await self._clean_pod(view)) is not None:
            return waits
        if (waits := await self._mark_ended(migration)) is not None:
            return waits
        released = await self._actuators.temporary_pdbs.release(view)
        if isinstance(released, Fail):
            self._reporter.cleanup_failed(migration, released.reason.message)
            return Proceed(released.reason.name, released.reason.message)
        return released

    async def _undo_surge(self, view: MigrationView) -> Wait | None:
        """Give back the count, and to a pod that stays its deletion cost."""
        migration, surge = view.migration, self._actuators.surge
        if migration.evicted_s is None and (stays := await surge.undo(view)) is not None:
            self._reporter.cleanup_failed(migration, stays.reason.message)
            return stays
        done = await surge.costs.restore(migration.namespace, migration.pod_name, migration.pod_uid)
        if done.result is MarkResult.FAILED and self._mark_again(migration, Step.RANKED):
            return self._mark_failed(Reason.MARK_FAILED.refusal("removal", error=done.message))
        return None

    async def _clean_pod(self, view: MigrationView) -> Wait | None:
        """Remove the marks of a pod that stays, and its copy."""
        migration = view.migration
        done = await self._actuators.marker.unmark(
            migration.namespace,
            migration.pod_name,
            migration.pod_uid,
            marks_before(view.pod, view.snapshot.migrations),
        )
        if done.result is MarkResult.FAILED and self._mark_again(migration, Step.CLEANED_UP):
            return self._mark_failed(Reason.MARK_FAILED.refusal("removal", error=done.message))
        if done.result in (MarkResult.REFUSED, MarkResult.FAILED) and view.alive:
            self._reporter.cleanup_failed(migration, done.message)
        # The copy of a completed move is the pod that stays.
        if view.bare and migration.phase == Phase.FAILED:
            await self._roll_back(view)
        return None

    async def mark_replacement(self, migration: MigrationRecord) -> MarkAttempt:
        """Mark the replacement, in a single try, with how far the move is.

        Only after it was recorded: while a request is under way, another Migration could take it
        for its own.
        """
        pod = PodMeta(migration.replacement_pod, migration.replacement_uid)
        return await self._actuators.marker.mark_replacement(migration, pod)

    async def _mark_ended(self, migration: MigrationRecord) -> Wait | None:
        """Mark the replacement with how the move ended; a copy that is removed needs no mark."""
        # The additional pod of a surge may stay although the move has failed.
        came = migration.evicted_s is not None or migration.phase == Phase.COMPLETED
        came = came or migration.surge
        if not migration.replacement_uid or not came:
            return None
        done = await self.mark_replacement(migration)
        if done.result is MarkResult.FAILED and self._mark_again(migration, Step.READY):
            return self._mark_failed(Reason.MARK_FAILED.refusal(error=done.message))
        return None

    async def unmark(self, pod: PodRecord, known: Mapping[str, MigrationRecord]) -> None:
        """Remove the marks of a pod that no Migration names any more."""
        before = marks_before(pod, known)
        await self._actuators.marker.unmark(pod.namespace, pod.name, pod.uid, before)

    async def evict_stuck(self, pod: PodRecord) -> None:
        """Evict a pod without a node that a move which is over had sent to its target."""
        found = await self._read(pod.namespace, pod.name, pod.uid)
        if found is None or found.spec.node_name:
            return
        victim = Victim(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        leads = self._preconditions.is_leader
        driver, lost = self._actuators.eviction, "this process is no longer the leader"
        await driver.evict(victim, lambda: None if leads() else lost)

    async def unrank(self, pod: PodRecord) -> None:
        """Give a pod its own deletion cost back that no Migration needs to go first."""
        await self._actuators.surge.costs.restore(pod.namespace, pod.name, pod.uid)

    async def _roll_back(self, view: MigrationView) -> None:
        """Remove the copy of a pod that stays; if the pod left, its copy is all there is."""
        migration = view.migration
        found = await self._read(migration.namespace, migration.pod_name, migration.pod_uid)
        if found is not None and not found.terminating and not found.finished:
            await self._actuators.bare_pods.roll_back(migration)

    def _too_early(self, view: MigrationView) -> Wait | None:
        """Wait until a node that is drained is cordoned, and was announced."""
        refusal = self._preconditions.why_not_drained(view.migration, view.snapshot)
        return None if refusal is None else self._soon(refusal)

    def _why_not(self, view: MigrationView, besides: Refusal | None) -> Refusal | None:
        stale = self._preconditions.why_not_synced()
        if stale is not None:
            return Reason.CACHE_STALE.refusal(cause=stale)
        return self._pacing.try_start(view.migration, view.snapshot, besides)

    def _not_acknowledged(self, view: MigrationView) -> Refusal | None:
        """Return which live extender does not know of the Migration."""
        self.remember(view.migration)
        version = self._first_seen[view.migration.uid]
        return self._pacing.acknowledged(version)

    def _too_early_to_guide(self, migration: MigrationRecord) -> Wait | None:
        """Wait until every API server has had the time to learn of the label.

        None of them tells what it knows. A new leader waits again.
        """
        since_s = self._guides_since_s[migration.uid]
        left_s = since_s + self._timing.guide_s - self._clock.monotonic()
        return Wait(Reason.GUIDE_UNKNOWN.refusal(), left_s) if left_s > 0 else None

    def _guidance_s(self, migration: MigrationRecord) -> float:
        """Return how long after a binding it is worth waiting for evidence of guidance."""
        timing, purpose = self._timing, migration.purpose
        return timing.guidance_s if purpose is Purpose.LOAD else timing.guidance_maintenance_s

    def _mark_again(self, migration: MigrationRecord, step: Step) -> bool:
        self._mark_attempts[migration.name, step] += 1
        return self._mark_attempts[migration.name, step] < self._timing.mark_attempts

    def _mark_failed(self, refusal: Refusal) -> Wait:
        return Wait(refusal, self._timing.backoff_min_s)

    def _soon(self, refusal: Refusal) -> Wait:
        return Wait(refusal, self._timing.recheck_s)

    def _victim(self, migration: MigrationRecord) -> Victim:
        grace = self._config().eviction_grace_period
        return Victim(
            namespace=migration.namespace,
            name=migration.pod_name,
            uid=migration.pod_uid,
            grace_s=None if grace is None else grace.seconds,
        )

    def _judge(self, view: MigrationView, answer: Answer) -> Verdict:
        migration, timing = view.migration, self._timing
        match answer.result:
            case Result.ACCEPTED:
                return Proceed(StepReason.EVICTED, answer.message)
            case Result.GONE:
                return Proceed(Reason.POD_GONE, answer.message)
            # A user has created a PDB since; the sweep removes ours as soon as it is seen.
            case Result.SEVERAL if has_temporary_pdb(view):
                return _later(Reason.TEMPORARY_PDB_GIVES_WAY, answer, timing.recheck_s, "answered")
            case Result.REFUSED | Result.SEVERAL:
                return Fail(Reason.EVICTION_REFUSED.refusal(answer=answer.message))
            case Result.BUDGET:
                # Without a Retry-After: eviction.go sends one only for a PDB not yet processed.
                pause_s = self._backoff.after_pdb_refusal_s(migration)
                return _later(Reason.PDB_EXHAUSTED, answer, pause_s, "answered")
            case Result.THROTTLED:
                return _later(Reason.THROTTLED, answer, timing.backoff_min_s)
            case Result.NOT_SENT:
                return _later(Reason.NOT_SENT, answer, timing.backoff_min_s)
            # No failed attempt: the next one reads the pod and learns what this one did.
            case Result.UNSURE:
                return _later(Reason.EVICTION_UNSURE, answer, timing.backoff_min_s)
            case Result.THERE:
                return _later(Reason.NOT_SEEN, answer, timing.recheck_s)
        pause_s = self._backoff.after_failure_s(migration)
        waiting = _later(Reason.EVICTION_FAILED, answer, pause_s)
        return msgspec.structs.replace(waiting, failed_attempt=True)

    async def _missing(self, view: MigrationView) -> Verdict:
        """Tell a replacement that is gone from one that the watch has not shown yet."""
        migration, name = view.migration, view.migration.replacement_pod
        try:
            found = await self._read(migration.namespace, name, migration.replacement_uid)
        except (KubeError, *UNDECODABLE) as error:
            return self._unseen(view, f"its replacement cannot be read: {error}")
        if found is not None and found.status.phase == _SUCCEEDED:
            return succeeded(view, found.spec.node_name)
        if found is not None and not found.terminating and not found.finished:
            return self._unseen(view, f"{name} exists, but the watch has not shown it")
        why = replacements.why_not_replaced(view)
        if why is not None and not view.bare:
            return why
        return Fail(Reason.REPLACEMENT_LOST.refusal(pod=name))

    def _unseen(self, view: MigrationView, message: str) -> Verdict:
        if view.late:
            return Fail(Reason.DEADLINE_EXCEEDED.refusal(cause=message))
        return self._soon(Reason.NOT_SEEN.refusal(answer=message))

    async def _read(self, namespace: str, name: str, uid: str) -> LivePod | None:
        """Read exactly this pod; None if it is gone, or another has its name."""
        pod = await read_pod(self._actuators.client, namespace, name)
        return pod if pod is not None and pod.metadata.uid == uid else None


def _later(reason: Reason, answer: Answer, least_s: float, case: str = "") -> Wait:
    retry_s = max(least_s, answer.retry_s or 0.0)
    return Wait(reason.refusal(case, answer=answer.message), retry_s)


def _refused(refusal: Refusal) -> Verdict:
    return Wait(refusal) if refusal.for_now() else Fail(refusal)


StepFunction = Callable[[StepRunner, MigrationView], Awaitable[Verdict]]

STEPS: Final[Mapping[Step, StepFunction]] = {
    Step.BUDGET_CHECKED: StepRunner.check,
    Step.MARKED: StepRunner.mark,
    Step.ACKNOWLEDGED: StepRunner.acknowledge,
    Step.PROTECTED: StepRunner.protect,
    Step.COUNTED: StepRunner.count,
    Step.RAISED: StepRunner.raise_count,
    Step.EVICTED: StepRunner.evict,
    Step.REPLACED: StepRunner.replace,
    Step.READY: StepRunner.ready,
    Step.RANKED: StepRunner.rank,
    Step.LOWERED: StepRunner.lower,
    Step.CLEANED_UP: StepRunner.clean_up,
}
"""What is done for each step."""
