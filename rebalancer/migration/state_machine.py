# SPDX-License-Identifier: Apache-2.0
"""What to do next about a Migration: a pure function of its view of the cluster.

Nothing is remembered between two calls: the conditions in the status record what was done,
the cluster shows the rest. So it does not matter which process called it last, or where that
process crashed. The rules are tried in order and the first one with an answer decides; a rule
that protects from an eviction stands before the one that asks for it.

Which steps a move takes is in `progress`, the rules about a surge are in `surge_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from common.api.contract import GUIDED_BY
from common.api.migrations import Outcome, Phase, Step
from common.cache.replacements import nearness
from common.cluster.records import NodeName, PodRecord
from common.config import Guide, RebalancerConfiguration
from rebalancer.evictability.surge import REVERTED_S
from rebalancer.migration import replacements, surge_rules
from rebalancer.migration.progress import (
    AFTER_EVICTION,
    commits,
    committed,
    holds_raise,
    missing_step,
    settled,
)
from rebalancer.migration.timing import evict_before_s
from rebalancer.migration.verdicts import (
    Do,
    Fail,
    Finish,
    Next,
    Proceed,
    Release,
    Remove,
    Rest,
    StartGuiding,
    StopGuiding,
    Wait,
)
from rebalancer.migration.view import MigrationView
from rebalancer.pacing.checks import maintenance_ended
from rebalancer.pacing.extenders import Asked
from rebalancer.pod_starts import CREATING, why_not_started
from rebalancer.refusals import Reason, Refusal, reported

GUIDED_S: Final = 30.0
"""How long a replacement that was sent to its target may wait for room there."""
_OUTCOMES: Final = frozenset(outcome.value for outcome in Outcome)
_LANDINGS: Final = {0: Outcome.AS_PLANNED, 1: Outcome.ALTERNATIVE}
_LANDING_MESSAGES: Final = {
    Outcome.AS_PLANNED: "as planned",
    Outcome.ALTERNATIVE: "an alternative to the target",
    Outcome.ELSEWHERE: "which was not planned",
    Outcome.BACK_ON_SOURCE: "where it came from",
    Outcome.UNGUIDED: "which its scheduler chose without guidance",
}
_ERR_IMAGE_PULL: Final = "ErrImagePull"
_IMAGE_PULL_BACK_OFF: Final = "ImagePullBackOff"
_NO_EVIDENCE: Final = "; no extender could tell whether it was asked"

Rule = Callable[[MigrationView, RebalancerConfiguration], Next | None]


def next_step(view: MigrationView, config: RebalancerConfiguration) -> Next:
    """Return what to do about the Migration now."""
    for rule in RULES:
        found = rule(view, config)
        if found is not None:
            return found
    return Do(missing_step(view) or Step.CLEANED_UP)


def landing(view: MigrationView, node: str) -> Outcome:
    """Compare the node of a replacement with the plan."""
    if node == view.migration.source:
        return Outcome.BACK_ON_SOURCE
    return _LANDINGS.get(nearness(view.migration, node), Outcome.ELSEWHERE)


def landed(view: MigrationView, pod: PodRecord, asked: Asked) -> Proceed:
    """Return the outcome of a move whose replacement is Ready, as reason and message.

    Unguided stops all moves for load, so it needs evidence: extenders that have reported
    since the binding and were not asked. Without evidence the node alone decides. An extender
    that could not write its Lease has steered the pod all the same, and without a live one no
    move for load begins anyway.
    """
    outcome = Outcome.UNGUIDED if asked is Asked.NO else landing(view, pod.node)
    doubt = "" if asked in (Asked.YES, Asked.NO) else _NO_EVIDENCE
    where = _LANDING_MESSAGES[outcome]
    return Proceed(outcome.value, f"{pod.key} is Ready on {pod.node}, {where}{doubt}")


def succeeded(view: MigrationView, node: str) -> Proceed:
    """Return the outcome of a move whose replacement has already run to completion."""
    outcome, name = landing(view, node), view.migration.replacement_pod
    where = _LANDING_MESSAGES[outcome]
    return Proceed(outcome.value, f"{name} has succeeded on {node}, {where}")


def closed_migration_is_cleaned_up(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    if _closed(view) and not settled(view, Step.CLEANED_UP):
        return Do(Step.CLEANED_UP)
    return None


def closed_migration_stops_guiding(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    return StopGuiding() if _closed(view) and view.migration.guides else None


def finished_migration_is_kept(view: MigrationView, config: RebalancerConfiguration) -> Next | None:
    if not _closed(view):
        return None
    migration = view.migration
    if migration.held:
        return Release()
    finished_s = migration.finished_s or migration.created_s
    kept_s = finished_s + config.keep_finished.seconds
    if migration.raise_reverted_s is not None:
        # It is the only memory of that, and the next surge has to wait for a day.
        kept_s = max(kept_s, migration.raise_reverted_s + REVERTED_S)
    left_s = kept_s - view.now_s
    return Rest(left_s) if left_s > 0 else Remove()


def withdrawn_migration_ends(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    if not view.migration.withdrawn:
        return None
    return Fail(Reason.WITHDRAWN.refusal())


def migration_completes(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """The condition Ready is recorded last and names the outcome; see `StepRunner.ready`."""
    if missing_step(view) is not None:
        return None
    ready = view.migration.condition(Step.READY)
    if ready is None or ready.reason not in _OUTCOMES:
        return Finish(landing(view, view.migration.replacement_node), "")
    return Finish(Outcome(ready.reason), ready.message)


def missing_pod_needs_no_eviction(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    if view.alive or settled(view, Step.EVICTED):
        return None
    # The step reads the pod: a watch may be late, and the record needs the time.
    if not view.bare or settled(view, Step.READY):
        return Do(Step.EVICTED)
    return Fail(Reason.POD_GONE.refusal("before copy"))


def replacement_is_recorded(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """Record it before anything depends on it, so that no other Migration claims the pod."""
    waits = committed(view) and not settled(view, Step.REPLACED)
    return Do(Step.REPLACED) if waits and replacements.candidate(view) is not None else None


def recorded_replacement_is_checked(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """It may be Ready, or gone; a watch cannot tell a deleted pod from one not yet seen."""
    if not settled(view, Step.REPLACED) or settled(view, Step.READY):
        return None
    found = view.replacement
    return Do(Step.READY) if found is None or found.terminating or found.ready else None


def no_replacement_needed(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    # A surge goes by the count that it reads itself.
    if view.bare or settled(view, Step.REPLACED) or holds_raise(view):
        return None
    return replacements.why_not_replaced(view)


def maintenance_still_wanted(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """Removing the maintenance label from a node means that its pods stay, from now on."""
    found = maintenance_ended(view.migration, view.snapshot)
    return Fail(found, missing_step(view)) if found is not None else None


def deadline_not_passed(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    if not view.late:
        return None
    step, cause = missing_step(view), _why_not_started(view)
    if cause is None:
        return Fail(Reason.DEADLINE_EXCEEDED.refusal("step", step=step))
    why = f"{cause.name}: {cause.message}"
    reason = Reason.DEADLINE_EXCEEDED.refusal("step with cause", step=step, cause=why)
    return Fail(reason, step, cause)


def _why_not_started(view: MigrationView) -> Refusal | None:
    """Return why the replacement is not Ready; None if none is expected yet."""
    if missing_step(view) not in AFTER_EVICTION:
        return None
    found = view.replacement or next(iter(replacements.pending(view)), None)
    return why_not_started(found) if found is not None and not found.ready else None


def time_left_to_evict(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """Nothing has happened to the pod yet, so nothing went wrong: it stays."""
    step = commits(view)
    if missing_step(view) is not step or not view.alive:
        return None
    if view.now_s < evict_before_s(view.migration):
        return None
    return Fail(Reason.DEADLINE_EXCEEDED.refusal("too late to evict"), step)


def spec_matches_pod(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """Other clients may create Migrations too; a wrong spec must not become an eviction."""
    pod, migration = view.pod, view.migration
    if pod is None or settled(view, Step.EVICTED):
        return None
    owner = pod.owner.uid if pod.owner is not None else ""
    spec = (migration.namespace, migration.pod_name, migration.source, migration.controller_uid)
    actual = (pod.namespace, pod.name, pod.node, owner)
    pairs = zip(spec, actual, strict=True)
    wrong = [f"{found} is not {wanted}" for wanted, found in pairs if wanted != found]
    if not wrong:
        return None
    return Fail(Reason.SPEC_CONTRADICTS.refusal(difference=wrong[0]))


def target_is_usable(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    migration = view.migration
    # A replacement that has a node does not need the target any more.
    placed = settled(view, Step.EVICTED) or settled(view, Step.REPLACED)
    if placed or not view.alive:
        return None
    if any(_usable(view, node) for node in (migration.target, *migration.alternatives)):
        return None
    return Fail(Reason.TARGET_GONE.refusal("all", node=migration.target))


def _usable(view: MigrationView, node: NodeName) -> bool:
    found = view.snapshot.nodes.get(node)
    return found is not None and found.node.ready and not found.node.unschedulable


def needed_room_is_free(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    if committed(view):
        return None
    for uid in view.still_there():
        other = view.snapshot.migrations.get(uid)
        name = view.snapshot.pods[uid].key
        # `needs` holds pod uids, and a Migration is named after the uid of its pod.
        if other is not None and not other.open and other.evicted_s is None:
            return Fail(Reason.ROOM_NOT_MADE.refusal(pod=name))
        return Wait(Reason.WAITS_FOR_ROOM.refusal(pod=name), step=Step.BUDGET_CHECKED)
    return None


def target_not_taken(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    # A younger sibling that comes after the raise is the one that we asked for, and a raise may
    # have been sent without being recorded.
    before = Step.COUNTED if view.migration.surge else Step.EVICTED
    if missing_step(view) is not before or view.bare:
        return None
    # Extenders give the reserved room to the first new sibling; ours would land elsewhere.
    found = replacements.intruder(view)
    if found is None:
        return None
    return Fail(Reason.PLACE_TAKEN.refusal(pod=found.key, node=found.node))


def migration_guides(view: MigrationView, config: RebalancerConfiguration) -> Next | None:
    """Not before limits allow the move: two Migrations of one workload must not guide."""
    if config.guide is not Guide.ADMISSION or missing_step(view) is not Step.ACKNOWLEDGED:
        return None
    return None if view.migration.guides else StartGuiding()


def guided_replacement_finds_room(
    view: MigrationView, config: RebalancerConfiguration
) -> Next | None:
    """A pod that was sent to a node without room for it would stay Pending for ever."""
    if config.guide is not Guide.ADMISSION or missing_step(view) is not Step.REPLACED:
        return None
    stuck = next((pod for pod in replacements.pending(view) if _is_stuck(pod, view)), None)
    if stuck is None:
        return None
    cause = why_not_started(stuck)
    reason = Reason.GUIDED_TO_FULL_NODE.refusal(
        pod=stuck.key, node=view.migration.target, seconds=GUIDED_S, cause=cause.message
    )
    return Fail(reason, Step.REPLACED)


def _is_stuck(pod: PodRecord, view: MigrationView) -> bool:
    told = pod.annotations.get(GUIDED_BY) == view.migration.uid
    return told and view.now_s - pod.created_s >= GUIDED_S


def copy_is_still_ready(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """The copy of a bare pod was Ready once; it must be Ready when the original goes."""
    if not view.bare or missing_step(view) is not Step.EVICTED or not view.alive:
        return None
    found = view.replacement
    if found is None or found.terminating:
        return Fail(Reason.REPLACEMENT_LOST.refusal("copy"))
    if found.node == view.migration.source:
        return Fail(Reason.COPY_ON_SOURCE.refusal(pod=found.key))
    if found.ready:
        return None
    return Wait(Reason.REPLACEMENT_NOT_READY.refusal(pod=found.key), step=Step.EVICTED)


def replacement_is_awaited(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    step = missing_step(view)
    if step is Step.REPLACED and not view.bare:
        return Wait(_not_found(view), step=step)
    if step is Step.READY and view.replacement is not None:
        return Wait(_not_ready(view.replacement), step=step)
    return None


def _not_found(view: MigrationView) -> Refusal:
    found = replacements.pending(view)
    if not found:
        return Reason.NO_REPLACEMENT_YET.refusal()
    return Reason.REPLACEMENT_PENDING.refusal("cause", cause=why_not_started(found[0]).message)


def _not_ready(replacement: PodRecord) -> Refusal:
    """Return what keeps the replacement from starting, once that is known.

    A kubelet alternates between ErrImagePull and ImagePullBackOff (pkg/kubelet/images/types.go).
    Both get one name, because the condition is written whenever its reason changes.
    """
    why = why_not_started(replacement)
    if why.name in CREATING or why.name == Reason.NOT_READY:
        return Reason.REPLACEMENT_NOT_READY.refusal("cause", cause=why.message)
    return reported(_IMAGE_PULL_BACK_OFF, why.message) if why.name == _ERR_IMAGE_PULL else why


def _closed(view: MigrationView) -> bool:
    return view.migration.phase in (Phase.COMPLETED, Phase.FAILED)


RULES: Final[tuple[Rule, ...]] = (
    closed_migration_stops_guiding,
    closed_migration_is_cleaned_up,
    finished_migration_is_kept,
    withdrawn_migration_ends,
    migration_completes,
    surge_rules.raised_count_is_checked,
    surge_rules.pod_stays_until_lowered,
    missing_pod_needs_no_eviction,
    replacement_is_recorded,
    surge_rules.replacement_is_not_on_source,
    recorded_replacement_is_checked,
    no_replacement_needed,
    maintenance_still_wanted,
    deadline_not_passed,
    time_left_to_evict,
    spec_matches_pod,
    target_is_usable,
    needed_room_is_free,
    target_not_taken,
    migration_guides,
    copy_is_still_ready,
    guided_replacement_finds_room,
    surge_rules.migration_is_held,
    surge_rules.creation_is_checked,
    replacement_is_awaited,
    surge_rules.all_replicas_are_ready,
)
"""In the order in which they are tried."""
