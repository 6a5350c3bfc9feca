"""What each step does to the world.

A step is asked again whenever it has not been recorded as done, so its effect may be there
already and must not be made twice. It answers with a verdict; recording that is the
controller's business. What is refused for good fails the move, anything else waits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import msgspec

from common.clock import Clock
from common.cluster.migrations import MigrationRecord, Phase, Step
from common.cluster.records import FINISHED_PHASES, PodRecord
from common.config import RebalancerConfiguration
from common.kube.errors import KubeError, NotFound
from common.kube.resources import PODS
from common.null_json import UNDECODABLE
from rebalancer.evictability import Purpose
from rebalancer.extenders import Asked
from rebalancer.limits import purpose_of
from rebalancer.migration import replacements
from rebalancer.migration.announcing import Announcer
from rebalancer.migration.budgeting import budget_refusal, guard_stands
from rebalancer.migration.deadlines import evict_before_s
from rebalancer.migration.eviction import Answer, EvictionDriver, Result, Victim
from rebalancer.migration.guarding import GUARDED
from rebalancer.migration.marks import Marking, Marks
from rebalancer.migration.outcomes import landed, succeeded
from rebalancer.migration.patience import Patience
from rebalancer.migration.scene import Scene
from rebalancer.migration.seams import Guard, Replacer, Steering
from rebalancer.migration.settings import ControllerSettings
from rebalancer.migration.verdicts import Fail, NotReplaced, Proceed, Verdict, Wait
from rebalancer.reasons import Refusal

_SUCCEEDED: Final = "Succeeded"
MARK_REFUSED: Final = "MarkRefused"
EVICTED: Final = "Evicted"
"""What the condition gives as its reason where the eviction was ours."""


class PodReader(Protocol):
    """The part of `KubeClient` that looking at a pod needs."""

    async def get(self, path: str) -> bytes: ...


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def there(self) -> bool:
        """The pod has neither ended nor is on its way out."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in FINISHED_PHASES


class Hands:
    """Takes steps; all of them together are `EFFECTS`."""

    def __init__(
        self,
        reader: PodReader,
        *,
        steering: Steering,
        guard: Guard,
        replacer: Replacer,
        eviction: EvictionDriver,
        marks: Marks,
        announcer: Announcer,
        config: Callable[[], RebalancerConfiguration],
        why_blind: Callable[[], str | None],
        leads: Callable[[], bool],
        answered: Callable[[Result], None],
        settings: ControllerSettings,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._reader = reader
        self._steering = steering
        self._guard = guard
        self._replacer = replacer
        self._eviction = eviction
        self._marks = marks
        self._announcer = announcer
        self._config = config
        self._why_blind = why_blind
        self._leads = leads
        self._answered = answered
        self._settings = settings
        self._clock = clock
        self._patience = Patience(settings, clock, rng)
        self._first_seen: dict[str, int] = {}
        self._mark_tries: Counter[tuple[str, Step]] = Counter()

    def meet(self, migration: MigrationRecord) -> None:
        """Take note of a Migration at its first sight: extenders must know that version."""
        self._first_seen.setdefault(migration.uid, migration.resource_version)

    def forget(self, migration: MigrationRecord) -> None:
        """Remember nothing of a Migration that is over."""
        self._first_seen.pop(migration.uid, None)
        for step in (Step.MARKED, Step.CLEANED_UP):
            self._mark_tries.pop((migration.name, step), None)
        self._patience.forget(migration)

    async def check(self, scene: Scene) -> Verdict:
        """Ask limits, switches, gates and the budget whether the move may begin."""
        refusal = self._why_not(scene, budget_refusal(scene))
        if refusal is not None:
            return _refused(refusal)
        if trying := self._steering.trying(scene.migration):
            return Proceed(trying, "it tries whether moving is well again")
        return Proceed("Allowed", "limits, gates and budgets allow it")

    async def mark(self, scene: Scene) -> Verdict:
        """Mark the pod; after some failures go on without."""
        migration = scene.migration
        done = await self._marks.put(migration, scene.now_s)
        if done.result is Marking.DONE:
            return Proceed("Marked")
        if done.result is Marking.FAILED and self._mark_again(migration, Step.MARKED):
            words = f"the marks could not be set: {done.words}"
            return Wait(Refusal("MarkFailed", words, False), self._settings.backoff_min_s)
        self._announcer.mark_refused(migration, done.words or "the pod is not there")
        return Proceed(MARK_REFUSED, done.words)

    async def acknowledge(self, scene: Scene) -> Verdict:
        """Wait until every live extender knows the Migration."""
        refusal = self._unknown(scene)
        if refusal is None:
            version = self._first_seen[scene.migration.uid]
            return Proceed("Acknowledged", f"extenders know resourceVersion {version}")
        return Fail(refusal) if refusal.for_good else self._soon(refusal)

    async def protect(self, scene: Scene) -> Verdict:
        return await self._guard.protect(scene.migration, scene)

    async def evict(self, scene: Scene) -> Verdict:
        """Ask all gates and extenders once more, then evict.

        An extender may have come back that knows less than those which were asked. A pod
        that the watch does not show alive is only looked at: the gates cannot judge what
        they do not see.
        """
        if (still := self._patience.left(scene)) is not None:
            return still
        besides = budget_refusal(scene) or self._unknown(scene)
        if scene.alive and (refusal := self._why_not(scene, besides)) is not None:
            return _refused(refusal)
        if scene.alive and (unguarded := await self._guard_again(scene)) is not None:
            return unguarded
        answer = await self._attempt(scene)
        self._answered(answer.result)
        verdict = self._judge(scene, answer)
        if isinstance(verdict, Wait) and scene.late:
            return Fail(Refusal("DeadlineExceeded", f"the deadline passed: {answer.words}"))
        if isinstance(verdict, Wait):
            least_s = self._settings.budget_min_s if answer.result is Result.BUDGET else None
            self._patience.hold(scene, verdict, least_s)
        return verdict

    async def _guard_again(self, scene: Scene) -> Verdict | None:
        """Have a guard made anew whose time was over before the eviction came."""
        found = scene.migration.condition(Step.PROTECTED)
        if found is None or found.reason != GUARDED or guard_stands(scene):
            return None
        verdict = await self._guard.protect(scene.migration, scene)
        return None if isinstance(verdict, Proceed) else verdict

    async def _attempt(self, scene: Scene) -> Answer:
        victim = self._victim(scene.migration)
        if not scene.alive:
            return await self._eviction.look(victim)
        return await self._eviction.evict(victim, lambda: self._stopped(scene.migration))

    def _stopped(self, migration: MigrationRecord) -> str | None:
        if not self._leads():
            return "this process does not lead any more"
        if self._clock.now() >= evict_before_s(migration):
            return "too little time is left before the deadline"
        refusal = self._steering.stopped(migration)
        return None if refusal is None else f"{refusal.name}: {refusal.words}"

    async def replace(self, scene: Scene) -> Verdict:
        """Note the replacement, which for a bare pod is made first."""
        if scene.bare:
            migration = scene.migration
            made = await self._replacer.replace(migration, scene, lambda: self._stopped(migration))
            if not isinstance(made, Proceed):
                return made
        found = replacements.candidate(scene)
        if found is not None:
            return Proceed("Found", f"{found.key} on {found.node}")
        return Wait(Refusal("ReplacementPending", "its replacement has no node yet", False))

    async def ready(self, scene: Scene) -> Verdict:
        """Say where the replacement runs, or that it is lost."""
        found = scene.replacement
        if found is None or found.terminating:
            return await self._missing(scene)
        if not found.ready:
            return Wait(Refusal("ReplacementNotReady", f"{found.key} is not Ready", False))
        bound_s = found.created_s if found.scheduled_s is None else found.scheduled_s
        asked = self._steering.asked(found, bound_s)
        patience_s = self._patience_s(scene.migration)
        if asked is Asked.UNTOLD and scene.now_s < bound_s + patience_s and not scene.late:
            words = "no extender has told yet whether it was asked"
            return self._soon(Refusal("GuidanceUnknown", words, False))
        return landed(scene, found, asked)

    async def clean_up(self, scene: Scene) -> Verdict:
        """Undo what a move leaves behind, as far as the pod has stayed."""
        migration = scene.migration
        if migration.evicted_s is None:
            done = await self._marks.take_away(
                migration.namespace, migration.pod_name, migration.pod_uid
            )
            if done.result is Marking.FAILED and self._mark_again(migration, Step.CLEANED_UP):
                words = f"the marks could not be removed: {done.words}"
                return Wait(Refusal("MarkFailed", words, False), self._settings.backoff_min_s)
            if done.result in (Marking.REFUSED, Marking.FAILED) and scene.alive:
                self._announcer.cleanup_failed(migration, done.words)
            if scene.bare and migration.phase == Phase.FAILED:
                await self._roll_back(scene)
        released = await self._guard.release(migration, scene)
        if isinstance(released, Fail):
            self._announcer.cleanup_failed(migration, released.reason.words)
            return Proceed(released.reason.name, released.reason.words)
        return Proceed("CleanedUp") if isinstance(released, NotReplaced) else released

    async def unmark(self, pod: PodRecord) -> None:
        """Remove the marks of a pod that no Migration speaks of any more."""
        await self._marks.take_away(pod.namespace, pod.name, pod.uid)

    async def _roll_back(self, scene: Scene) -> None:
        """Remove the copy of a pod that stays; of one that went the copy is all there is."""
        migration = scene.migration
        if await self._is_there(migration.namespace, migration.pod_name, migration.pod_uid):
            await self._replacer.roll_back(migration, scene)

    def _why_not(self, scene: Scene, besides: Refusal | None) -> Refusal | None:
        blind = self._why_blind()
        if blind is not None:
            return Refusal("CacheStale", f"the cluster is not seen clearly: {blind}", False)
        return self._steering.may_start(scene.migration, scene, besides)

    def _unknown(self, scene: Scene) -> Refusal | None:
        """Return which living extender does not know of the Migration."""
        self.meet(scene.migration)
        version = self._first_seen[scene.migration.uid]
        return self._steering.acknowledged(version, scene.scheduler())

    def _patience_s(self, migration: MigrationRecord) -> float:
        """Return how long after a binding it is worth waiting for evidence of guidance."""
        settings, purpose = self._settings, purpose_of(migration)
        return settings.guidance_s if purpose is Purpose.LOAD else settings.guidance_emptying_s

    def _mark_again(self, migration: MigrationRecord, step: Step) -> bool:
        self._mark_tries[migration.name, step] += 1
        return self._mark_tries[migration.name, step] < self._settings.mark_tries

    def _soon(self, refusal: Refusal) -> Wait:
        return Wait(refusal, self._settings.acknowledge_again_s)

    def _victim(self, migration: MigrationRecord) -> Victim:
        grace = self._config().eviction_grace_period
        return Victim(
            namespace=migration.namespace,
            name=migration.pod_name,
            uid=migration.pod_uid,
            grace_s=None if grace is None else grace.seconds,
        )

    def _judge(self, scene: Scene, answer: Answer) -> Verdict:
        migration = scene.migration
        match answer.result:
            case Result.ACCEPTED:
                return Proceed(EVICTED, answer.words)
            case Result.GONE:
                return Proceed("PodGone", answer.words)
            case Result.SEVERAL if guard_stands(scene):
                return _later("TemporaryPdbGivesWay", answer, self._settings.acknowledge_again_s)
            case Result.REFUSED | Result.SEVERAL:
                return Fail(Refusal("EvictionRefused", answer.words))
            case Result.BUDGET:
                return _later("PdbExhausted", answer, self._patience.for_budget(migration))
            case Result.THROTTLED:
                return _later("Throttled", answer, self._settings.backoff_min_s)
            case Result.NOT_SENT:
                return _later("NotSent", answer, self._settings.backoff_min_s)
            case Result.UNSURE:
                return _later("EvictionUnsure", answer, self._settings.backoff_min_s)
            case Result.THERE:
                return _later("NotSeen", answer, self._settings.acknowledge_again_s)
        waiting = _later("EvictionFailed", answer, self._patience.after_attempt(migration))
        return msgspec.structs.replace(waiting, counts=True)

    async def _missing(self, scene: Scene) -> Verdict:
        """Tell a replacement that is gone from one that the watch has not shown yet."""
        migration = scene.migration
        try:
            found = await self._read(
                migration.namespace, migration.replacement_pod, migration.replacement_uid
            )
        except (KubeError, *UNDECODABLE) as error:
            return self._unseen(scene, f"its replacement cannot be read: {error}")
        if found is not None and found.status.phase == _SUCCEEDED:
            return succeeded(scene, found.spec.node_name)
        if found is not None and found.there:
            words = f"{migration.replacement_pod} is there, but the watch has not shown it"
            return self._unseen(scene, words)
        why = replacements.why_not_replaced(scene)
        if why is not None and not scene.bare:
            return NotReplaced(*why)
        words = f"{migration.replacement_pod} went away before it was Ready"
        return Fail(Refusal("ReplacementLost", words))

    def _unseen(self, scene: Scene, words: str) -> Verdict:
        if scene.late:
            return Fail(Refusal("DeadlineExceeded", f"the deadline passed: {words}"))
        return self._soon(Refusal("NotSeen", words, False))

    async def _is_there(self, namespace: str, name: str, uid: str) -> bool:
        found = await self._read(namespace, name, uid)
        return found is not None and found.there

    async def _read(self, namespace: str, name: str, uid: str) -> _Pod | None:
        """Return exactly this pod; None if it is gone, or another has its name."""
        path = PODS.path(namespace=namespace, name=name)
        try:
            pod = msgspec.json.decode(await self._reader.get(path), type=_Pod)
        except NotFound:
            return None
        return pod if pod.metadata.uid == uid else None


def _later(name: str, answer: Answer, least_s: float) -> Wait:
    retry_s = max(least_s, answer.retry_s or 0.0)
    return Wait(Refusal(name, answer.words, for_good=False), retry_s)


def noted(scene: Scene) -> PodRecord | None:
    """Return the pod that the step `replace` has found in this scene."""
    return replacements.candidate(scene)


def _refused(refusal: Refusal) -> Verdict:
    return Fail(refusal) if refusal.for_good else Wait(refusal)


Effect = Callable[[Hands, Scene], Awaitable[Verdict]]

EFFECTS: Final[Mapping[Step, Effect]] = {
    Step.BUDGET_CHECKED: Hands.check,
    Step.MARKED: Hands.mark,
    Step.ACKNOWLEDGED: Hands.acknowledge,
    Step.PROTECTED: Hands.protect,
    Step.EVICTED: Hands.evict,
    Step.REPLACED: Hands.replace,
    Step.READY: Hands.ready,
    Step.CLEANED_UP: Hands.clean_up,
}
"""What is done for each step."""
