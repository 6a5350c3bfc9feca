# SPDX-License-Identifier: Apache-2.0
"""The rules of the state machine that only concern a move by surge.

Between the raise and the lowering the count of the workload is ours, and so is the duty to
give it back. Everything that makes the move pointless in that time fails it, and the cleanup
lowers the count. What the watch shows of the workload may be older than our own write; where
it differs from what we wrote, the step itself reads the workload and decides. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.api.migrations import Step
from common.cluster.records import PodRecord
from common.config import RebalancerConfiguration
from rebalancer.migration import replacements
from rebalancer.migration.progress import holds_raise, missing_step, settled
from rebalancer.migration.verdicts import Do, Fail, Hold, Next, Wait
from rebalancer.migration.view import MigrationView
from rebalancer.refusals import Reason

_READS_COUNT: Final = (Step.REPLACED, Step.READY, Step.RANKED, Step.LOWERED)
"""The steps that read the workload before anything else."""


def migration_is_held(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """A Migration that is deleted must stay until the count is given back."""
    counts = view.migration.surge and missing_step(view) is Step.COUNTED
    return Hold() if counts and not view.migration.held else None


def pod_stays_until_lowered(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """Another client has removed the pod: its controller creates one more in its place."""
    if not holds_raise(view) or view.alive or settled(view, Step.EVICTED):
        return None
    # The count may have been lowered without being recorded: the step reads it.
    ranked = missing_step(view) is Step.LOWERED
    return Do(Step.LOWERED) if ranked else Fail(Reason.POD_GONE.refusal("surge"))


def raised_count_is_checked(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """The count, or anything else of the workload, is not what we left."""
    step = missing_step(view)
    if not settled(view, Step.RAISED) or step not in _READS_COUNT:
        return None
    return None if workload_is_as_raised(view) else Do(step)


def workload_is_as_raised(view: MigrationView) -> bool:
    """Tell whether the watch shows the workload as our raise left it."""
    found, mine = view.workload, view.migration
    if found is None or mine.surge_replicas is None:
        return False
    expected = (mine.surge_replicas + 1, mine.surge_generation)
    return (found.desired, found.generation) == expected


def replacement_is_not_on_source(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    found = view.replacement
    if not holds_raise(view) or found is None or found.node != view.migration.source:
        return None
    return Fail(Reason.COPY_ON_SOURCE.refusal(pod=found.key), Step.READY)


def creation_is_checked(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """Without any new pod the step asks whether its controller could create one."""
    waits = settled(view, Step.RAISED) and missing_step(view) is Step.REPLACED
    return Do(Step.REPLACED) if waits and not replacements.newcomers(view) else None


def all_replicas_are_ready(view: MigrationView, _: RebalancerConfiguration) -> Next | None:
    """A ReplicaSet removes pods that are not ready first, whatever they cost to delete.

    See ActivePodsWithRanks in pkg/controller/controller_utils.go.
    """
    step, mine = missing_step(view), view.migration
    if step not in (Step.RANKED, Step.LOWERED):
        return None
    found = view.replacement
    if found is None or found.terminating:
        return Fail(Reason.REPLACEMENT_LOST.refusal(pod=mine.replacement_pod), step)
    pods = living(view)
    if (left_s := unavailable_s(view, found)) is not None and left_s > 0:
        reason = Reason.REPLACEMENT_NOT_READY.refusal("available", pod=found.key, left=left_s)
        return Wait(reason, left_s, step=step)
    late = [pod for pod in pods if not pod.ready]
    if late or left_s is None:
        pod = late[0].key if late else found.key
        return Wait(Reason.SIBLING_NOT_READY.refusal(pod=pod), step=step)
    wanted = (mine.surge_replicas or 0) + 1
    if len(pods) == wanted:
        return None
    return Wait(
        Reason.SIBLING_NOT_READY.refusal("count", count=len(pods), wanted=wanted), step=step
    )


def living(view: MigrationView) -> Sequence[PodRecord]:
    """Return the pods of the controller that it counts."""
    controller = view.migration.controller_id
    found = view.snapshot.by_owner[controller].values() if controller is not None else ()
    return [pod for pod in found if not pod.terminating and not pod.finished]


def unavailable_s(view: MigrationView, pod: PodRecord) -> float | None:
    """Return how long a pod has to stay Ready until it is available; None if it is not Ready."""
    if pod.ready_since_s is None:
        return None
    owner = view.owner
    return pod.ready_since_s + (owner.min_ready_s if owner is not None else 0) - view.now_s
