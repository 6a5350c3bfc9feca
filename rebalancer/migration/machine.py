"""What to do next about a Migration: a pure function of what is seen.

Nothing is remembered between two looks: conditions in the status say what was done, the
cluster says what is. So it does not matter who looked last, or where it died. The rules are
asked in order and the first that has an opinion is followed; a rule that guards the eviction
stands before the one that lets it come.

A pod with a controller is evicted first and replaced then, a bare one the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from common.cluster.migrations import Outcome, Phase, Step
from common.cluster.records import NodeName, PodRecord
from rebalancer.limits import maintenance_ended
from rebalancer.migration import replacements
from rebalancer.migration.deadlines import evict_before_s
from rebalancer.migration.outcomes import landing
from rebalancer.migration.scene import Scene
from rebalancer.migration.verdicts import (
    Do,
    Fail,
    Finish,
    Hold,
    Next,
    NotReplaced,
    Remove,
    Rest,
)
from rebalancer.pod_starts import CREATING, NOT_READY, why_not_started
from rebalancer.reasons import Refusal

OWNED_STEPS: Final[tuple[Step, ...]] = (
    Step.BUDGET_CHECKED,
    Step.MARKED,
    Step.ACKNOWLEDGED,
    Step.PROTECTED,
    Step.EVICTED,
    Step.REPLACED,
    Step.READY,
)
BARE_STEPS: Final[tuple[Step, ...]] = (
    Step.BUDGET_CHECKED,
    Step.MARKED,
    Step.ACKNOWLEDGED,
    Step.REPLACED,
    Step.READY,
    Step.EVICTED,
)
_AFTER: Final = (Step.REPLACED, Step.READY)
_OUTCOMES: Final = frozenset(outcome.value for outcome in Outcome)


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decisions depend on."""

    keep_finished_s: float = 3600.0


Rule = Callable[[Scene, Rules], Next | None]


def next_step(scene: Scene, rules: Rules) -> Next:
    """Return what is to be done about the Migration now."""
    for rule in RULES:
        found = rule(scene, rules)
        if found is not None:
            return found
    return Do(missing_step(scene) or Step.CLEANED_UP)


def settled(scene: Scene, step: Step) -> bool:
    """Tell whether a step needs no more attention; a mark that was refused does not."""
    found = scene.migration.condition(step)
    if found is None:
        return False
    return found.status == "True" or (step is Step.MARKED and found.reason == "MarkRefused")


def missing_step(scene: Scene) -> Step | None:
    """Return the first step that is not done; what prepares an eviction is none after it."""
    steps = BARE_STEPS if scene.bare else OWNED_STEPS
    if settled(scene, Step.EVICTED):
        steps = _AFTER
    return next((step for step in steps if not settled(scene, step)), None)


def a_closed_one_is_cleaned_up(scene: Scene, _: Rules) -> Next | None:
    if _closed(scene) and not settled(scene, Step.CLEANED_UP):
        return Do(Step.CLEANED_UP)
    return None


def a_finished_one_is_kept_for_a_while(scene: Scene, rules: Rules) -> Next | None:
    if not _closed(scene):
        return None
    finished_s = scene.migration.finished_s or scene.migration.created_s
    left_s = finished_s + rules.keep_finished_s - scene.now_s
    return Rest(left_s) if left_s > 0 else Remove()


def a_withdrawn_one_ends(scene: Scene, _: Rules) -> Next | None:
    if not scene.migration.withdrawn:
        return None
    return Fail(Refusal("Withdrawn", "the Migration is being deleted"))


def the_end_is_told(scene: Scene, _: Rules) -> Next | None:
    """The step that is recorded last names the outcome; see `steps.ready`."""
    if missing_step(scene) is not None:
        return None
    noted = scene.migration.condition(Step.READY)
    if noted is None or noted.reason not in _OUTCOMES:
        return Finish(landing(scene, scene.migration.replacement_node), "")
    return Finish(Outcome(noted.reason), noted.message)


def a_pod_that_is_gone_needs_no_eviction(scene: Scene, _: Rules) -> Next | None:
    if scene.alive or settled(scene, Step.EVICTED):
        return None
    if not scene.bare or settled(scene, Step.READY):
        return Do(Step.EVICTED)
    return Fail(Refusal("PodGone", "somebody else removed the pod before its copy was Ready"))


def a_replacement_is_noted(scene: Scene, _: Rules) -> Next | None:
    """Before anything else depends on it: nobody may take the pod for another one's."""
    waits = settled(scene, Step.EVICTED) and not settled(scene, Step.REPLACED)
    return Do(Step.REPLACED) if waits and replacements.candidate(scene) is not None else None


def a_noted_replacement_is_looked_at(scene: Scene, _: Rules) -> Next | None:
    """It may be Ready, or gone: the watch alone cannot tell gone from not yet heard of."""
    if not settled(scene, Step.REPLACED) or settled(scene, Step.READY):
        return None
    found = scene.replacement
    return Do(Step.READY) if found is None or found.terminating or found.ready else None


def nobody_is_missing(scene: Scene, _: Rules) -> Next | None:
    if scene.bare or settled(scene, Step.REPLACED):
        return None
    found = replacements.why_not_replaced(scene)
    return NotReplaced(*found) if found is not None else None


def the_maintenance_goes_on(scene: Scene, _: Rules) -> Next | None:
    """Whoever takes the label off a node wants its pods to stay, now."""
    found = maintenance_ended(scene.migration, scene.snapshot)
    return Fail(found, missing_step(scene)) if found is not None else None


def the_deadline_holds(scene: Scene, _: Rules) -> Next | None:
    if not scene.late:
        return None
    step, cause = missing_step(scene), _why_not_started(scene)
    words = f"the deadline passed before the condition {step} came true"
    if cause is None:
        return Fail(Refusal("DeadlineExceeded", words))
    words = f"{words}: {cause.name}: {cause.words}"
    return Fail(Refusal("DeadlineExceeded", words), step, cause)


def _why_not_started(scene: Scene) -> Refusal | None:
    """Return why the replacement is not Ready; None where none is to be expected yet."""
    if missing_step(scene) not in _AFTER:
        return None
    found = scene.replacement or next(iter(replacements.pending(scene)), None)
    return why_not_started(found) if found is not None and not found.ready else None


def time_is_left_to_evict(scene: Scene, _: Rules) -> Next | None:
    """Nothing has happened to the pod yet, so nothing went wrong: it stays."""
    if missing_step(scene) is not Step.EVICTED or not scene.alive:
        return None
    if scene.now_s < evict_before_s(scene.migration):
        return None
    words = "too little time is left before the deadline to evict the pod, so it stays"
    return Fail(Refusal("DeadlineExceeded", words), Step.EVICTED)


def it_says_what_is(scene: Scene, _: Rules) -> Next | None:
    """Anybody with the right may write a Migration; nonsense must not become an eviction."""
    pod, migration = scene.pod, scene.migration
    if pod is None or settled(scene, Step.EVICTED):
        return None
    owner = pod.owner.uid if pod.owner is not None else ""
    said = (migration.namespace, migration.pod_name, migration.source, migration.controller_uid)
    found = (pod.namespace, pod.name, pod.node, owner)
    wrong = [f"{is_} is not {says}" for says, is_ in zip(said, found, strict=True) if says != is_]
    if not wrong:
        return None
    return Fail(Refusal("SpecContradicts", f"the pod is not as the spec says: {wrong[0]}"))


def there_is_somewhere_to_go(scene: Scene, _: Rules) -> Next | None:
    migration = scene.migration
    placed = settled(scene, Step.EVICTED) or settled(scene, Step.REPLACED)
    if placed or not scene.alive:
        return None
    if any(_usable(scene, node) for node in (migration.target, *migration.alternatives)):
        return None
    words = f"{migration.target} and its alternatives are not Ready, cordoned or gone"
    return Fail(Refusal("TargetGone", words))


def _usable(scene: Scene, node: NodeName) -> bool:
    view = scene.snapshot.nodes.get(node)
    return view is not None and view.node.ready and not view.node.unschedulable


def room_is_made_first(scene: Scene, _: Rules) -> Next | None:
    if settled(scene, Step.EVICTED):
        return None
    for uid in scene.still_there():
        other = scene.snapshot.migrations.get(uid)
        name = scene.snapshot.pods[uid].key
        if other is not None and not other.open and other.evicted_s is None:
            return Fail(Refusal("RoomNotMade", f"{name}, whose room it needs, stays"))
        words = f"{name}, whose room it needs, is still there"
        return Hold(Step.BUDGET_CHECKED, Refusal("WaitsForRoom", words, for_good=False))
    return None


def the_place_is_not_taken(scene: Scene, _: Rules) -> Next | None:
    if missing_step(scene) is not Step.EVICTED or scene.bare:
        return None
    found = replacements.intruder(scene)
    if found is None:
        return None
    words = f"{found.key} of the same workload has come to {found.node} meanwhile"
    return Fail(Refusal("PlaceTaken", words))


def a_copy_stays_ready(scene: Scene, _: Rules) -> Next | None:
    """The copy of a bare pod was Ready once; it must be so when the original goes."""
    if not scene.bare or missing_step(scene) is not Step.EVICTED or not scene.alive:
        return None
    found = scene.replacement
    if found is None or found.terminating:
        return Fail(Refusal("ReplacementLost", "the copy is gone before the original went"))
    if found.node == scene.migration.source:
        return Fail(Refusal("CopyOnSource", f"{found.key} came to the node that it is to leave"))
    if found.ready:
        return None
    return Hold(Step.EVICTED, Refusal("ReplacementNotReady", f"{found.key} is not Ready", False))


def a_replacement_is_awaited(scene: Scene, _: Rules) -> Next | None:
    step = missing_step(scene)
    if step is Step.REPLACED and not scene.bare:
        found = replacements.pending(scene)
        if not found:
            return Hold(step, Refusal("NoReplacementYet", "nobody has made one yet", False))
        words = why_not_started(found[0]).words
        return Hold(step, Refusal("ReplacementPending", words, False))
    if step is Step.READY and scene.replacement is not None:
        return Hold(step, _not_ready(scene.replacement))
    return None


def _not_ready(replacement: PodRecord) -> Refusal:
    """Name what keeps the replacement from starting once that is known.

    A kubelet says ErrImagePull and ImagePullBackOff by turns; one name is kept for both, for
    the condition is written again whenever its reason changes.
    """
    why = why_not_started(replacement)
    if why.name in CREATING or why.name == NOT_READY:
        return Refusal("ReplacementNotReady", why.words, for_good=False)
    name = "ImagePullBackOff" if why.name == "ErrImagePull" else why.name
    return Refusal(name, why.words, for_good=False)


def _closed(scene: Scene) -> bool:
    return scene.migration.phase in (Phase.COMPLETED, Phase.FAILED)


RULES: Final[tuple[Rule, ...]] = (
    a_closed_one_is_cleaned_up,
    a_finished_one_is_kept_for_a_while,
    a_withdrawn_one_ends,
    the_end_is_told,
    a_pod_that_is_gone_needs_no_eviction,
    a_replacement_is_noted,
    a_noted_replacement_is_looked_at,
    nobody_is_missing,
    the_maintenance_goes_on,
    the_deadline_holds,
    time_is_left_to_evict,
    it_says_what_is,
    there_is_somewhere_to_go,
    room_is_made_first,
    the_place_is_not_taken,
    a_copy_stays_ready,
    a_replacement_is_awaited,
)
"""In the order in which they are asked."""
