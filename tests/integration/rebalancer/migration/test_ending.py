# SPDX-License-Identifier: Apache-2.0
"""How a move ends when it cannot or need not go on; a pod that stays is clean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from common.api.contract import MIGRATION_ID_LABEL, MIGRATION_STATUS_LABEL, TEMPORARY_PDB_LABEL
from common.clock import SYSTEM, SystemClock
from common.config import RebalancerConfiguration
from common.kube.resources import DEPLOYMENTS, MIGRATIONS, NODES, PDBS, PODS, STATEFULSETS
from common.kube.timestamps import parse_time
from rebalancer.migration import Wait
from rebalancer.refusals import Refusal
from simulator import build
from simulator.api import Change, DeleteOptions, Json
from simulator.build import Manifest
from simulator.faults import FreezeWatches, RejectPods, ServerError
from tests.support.stands.extender import maintain
from tests.support.stands.migration import QUICK, MigrationStand, condition, migrating

MAINTENANCE: Json = {"strategy": "NodeMaintenance", "reason": "Maintenance"}
PAUSED = Refusal("Paused", "paused is set", permanent=False)
BEHIND = Refusal("NotAcknowledged", "an extender is behind", permanent=False)


def message_of(status: Json) -> str:
    return str(status["message"]).split(":")[0]


def closed(status: Json) -> tuple[str, str, str]:
    return status["phase"], status.get("outcome", ""), message_of(status)


async def test_a_workload_scaled_down_before_the_eviction_needs_no_replacement(
    tmp_path: Path,
) -> None:
    async with migrating(tmp_path, build.deployment("web", 3)) as stand:
        victim = (await stand.until_ready(3))[0]
        stand.policy.not_acknowledged = BEHIND
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
            stand.cluster.store.patch(
                DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, namespace="default"
            )
            [status] = await stand.until_ended(name)
        assert closed(status)[:2] == ("Completed", "NotReplaced")
        assert message_of(status) in ("Superseded", "OwnerDeleted")
        assert stand.figure("evictions_total", result="accepted") == 0


@pytest.mark.parametrize("how", ["scaled", "deleted"])
async def test_a_workload_that_wants_fewer_pods_after_the_eviction_gets_no_replacement(
    how: str, tmp_path: Path
) -> None:
    slow = {build.STOP_AFTER: "500s"}
    async with migrating(tmp_path, build.deployment("web", 3, annotations=slow)) as stand:
        victim = (await stand.until_ready(3))[0]
        stand.only()
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Replaced", "ReplacementPending")
            if how == "scaled":
                patch = {"spec": {"replicas": 2}}
                stand.cluster.store.patch(DEPLOYMENTS, "web", patch, namespace="default")
            else:
                stand.cluster.store.delete(DEPLOYMENTS, "web", namespace="default")
            [status] = await stand.until_ended(name)
        expected = {"scaled": "ScaledDown", "deleted": "OwnerDeleted"}
        assert closed(status) == ("Completed", "NotReplaced", expected[how])
        assert len(stand.events("MigrationNotReplaced")) == 1


async def test_a_rollout_in_mid_move_ends_it_without_a_replacement(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.only()
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Replaced", "ReplacementPending")
            template = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
            stand.cluster.store.patch(DEPLOYMENTS, "web", template, namespace="default")
            stand.only(*stand.cluster.node_names())
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"
        assert stand.deletions[0] == name


async def test_a_stateful_set_that_shrinks_below_the_ordinal_ends_the_move(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.stateful_set("web", 2)) as stand:
        victim = (await stand.until_ready(2))[1]
        stand.only()
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Replaced", "ReplacementPending")
            patch = {"spec": {"replicas": 1}}
            stand.cluster.store.patch(STATEFULSETS, "web", patch, namespace="default")
            [status] = await stand.until_ended(name)
        assert closed(status) == ("Completed", "NotReplaced", "ScaledDown")


async def test_a_replacement_that_never_gets_a_node_fails_at_the_deadline(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.only()
        stand.give(2.0)
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            [status] = await stand.until_ended(name)
        assert closed(status) == ("Failed", "", "DeadlineExceeded")
        assert "evictedAt" in status
        assert stand.guard.released == [name]


class AnotherApiServer(SystemClock):
    """The clock that API servers stamp with: once another one answers, it is behind."""

    behind_s = 0.0

    def now(self) -> float:
        return super().now() - self.behind_s


@pytest.mark.parametrize("make", [build.deployment, build.stateful_set])
async def test_api_servers_whose_clocks_differ_do_not_lose_a_replacement(
    make: Callable[..., Manifest], tmp_path: Path
) -> None:
    clock = AnotherApiServer()
    async with migrating(tmp_path, make("web", 3), clock=clock) as stand:
        victim = (await stand.until_ready(3))[0]
        target = stand.others(victim)[0]
        stand.only(target)
        async with stand.controller():
            name = stand.plan(victim, target)
            clock.behind_s = 5.0
            [status] = await stand.until_ended(name)
        made = stand.migration(name)["metadata"]["creationTimestamp"]
        new = stand.record(status["replacement"]["uid"])["metadata"]
        assert new["creationTimestamp"] < made, "another API server has stamped it"
        assert closed(status)[:2] == ("Completed", "AsPlanned")


async def test_with_too_little_time_left_nothing_is_evicted(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        busy = Refusal("Busy", "others go first", permanent=False)
        stand.policy.refusal = lambda _: busy
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0], lasts_s=4.0)
            due_s = parse_time(stand.migration(name)["spec"]["deadline"])
            await stand.until(lambda: SYSTEM.now() > due_s - 0.7, "little time is left")
            stand.policy.refusal = lambda _: None
            [status] = await stand.until_ended(name)
        assert closed(status) == ("Failed", "", "DeadlineExceeded")
        assert stand.deletions == []
        assert "evictedAt" not in status


async def test_a_replacement_has_its_whole_time_from_the_eviction_on(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.only()
        async with stand.controller():
            name = stand.plan(victim, target, lasts_s=4.0)
            due_s = parse_time(stand.migration(name)["spec"]["deadline"])
            await stand.until(lambda: SYSTEM.now() > due_s + 0.5, "the first deadline has passed")
            stand.only(target)
            [status] = await stand.until_ended(name)
        assert closed(status)[:2] == ("Completed", "AsPlanned")
        assert parse_time(status["replacementDeadline"]) > due_s


async def test_a_replacement_that_its_kubelet_rejects_is_a_failure(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.only(target)
        stand.cluster.faults.inject(RejectPods(node=target))
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, target))
        assert closed(status) == ("Failed", "", "ReplacementLost")


async def test_a_pod_that_another_client_removed_is_not_evicted(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.policy.not_acknowledged = BEHIND
        async with stand.controller():
            name = stand.plan(victim, target)
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
            stand.cluster.store.delete(PODS, victim["metadata"]["name"], namespace="default")
            [status] = await stand.until_ended(name)
            assert stand.figure("evictions_total", result="accepted") == 0
        assert status["phase"] == "Completed"
        assert condition(stand.migration(name), "Evicted")["reason"] == "PodGone"


async def test_the_namesake_of_a_pod_that_is_gone_is_never_evicted(tmp_path: Path) -> None:
    """A Migration for yesterday's pod of a StatefulSet finds another pod under its name."""
    async with migrating(tmp_path, build.stateful_set("web", 2)) as stand:
        old = (await stand.until_ready(2))[0]
        now = DeleteOptions(grace_s=0)
        stand.cluster.store.delete(PODS, old["metadata"]["name"], namespace="default", options=now)
        await stand.until_ready(2)
        async with stand.controller():
            stand.give(2.0)
            name = stand.plan(old, stand.others(old)[0])
            [status] = await stand.until_ended(name)
            assert stand.figure("evictions_total", result="accepted") == 0
            assert stand.figure("evictions_total", result="gone") == 1
        assert status["phase"] == "Failed"
        assert condition(stand.migration(name), "Evicted")["reason"] == "PodGone"
        assert [uid for uid in stand.deletions if uid != old["metadata"]["uid"]] == []


async def test_what_is_refused_for_good_fails_before_anything_is_done(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        never = Refusal("OptedOut", "its owner says so")
        stand.policy.refusal = lambda _: never
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            [status] = await stand.until_ended(name)
        assert closed(status) == ("Failed", "", "OptedOut")
        assert stand.deletions == []
        assert stand.guard.protected == []
        assert "startedAt" not in status


async def test_a_node_under_maintenance_shows_why_a_pod_stays(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        maintain(stand.cluster, victim["spec"]["nodeName"], on=True)
        stand.policy.refusal = lambda _: Refusal("LocalStorage", "it has local storage")
        async with stand.controller():
            target = stand.others(victim)[0]
            await stand.until_ended(stand.plan(victim, target, strategy="NodeMaintenance"))
        kinds = {event["regarding"]["kind"] for event in stand.events("MigrationFailed")}
        assert kinds == {"Pod", "Node", "ReplicaSet"}


@pytest.mark.parametrize(
    ("step", "reason"), [("Acknowledged", "NotAcknowledged"), ("Evicted", "Paused")]
)
async def test_a_maintenance_label_that_goes_away_stops_the_move_at_once(
    step: str, reason: str, tmp_path: Path
) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        source = victim["spec"]["nodeName"]
        maintain(stand.cluster, source, on=True)
        # Only what wakes it may bring it to look again.
        stand.timing = replace(QUICK, resync_s=3600.0, recheck_s=3600.0)
        if step == "Acknowledged":
            stand.policy.not_acknowledged = BEHIND
        else:
            stand.policy.refusal = lambda _: PAUSED if stand.guard.protected else None
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0], **MAINTENANCE)
            await stand.until_waits(name, step, reason)
            maintain(stand.cluster, source, on=False)
            [status] = await stand.until_ended(name)
            failures = stand.figure("migration_failures_total", reason="MaintenanceEnded")
            ended = stand.figure("migrations_total", outcome="Failed", strategy="NodeMaintenance")
        assert closed(status) == ("Failed", "", "MaintenanceEnded")
        assert condition(stand.migration(name), step)["reason"] == "MaintenanceEnded"
        assert (failures, ended) == (1, 1)
        kinds = {event["regarding"]["kind"] for event in stand.events("MigrationFailed")}
        assert kinds == {"Pod", "Node", "ReplicaSet"}
        assert stand.deletions == []
        assert not stand.marks(name)


async def test_a_pod_that_has_left_is_replaced_though_the_label_goes(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        maintain(stand.cluster, victim["spec"]["nodeName"], on=True)
        stand.only()
        async with stand.controller():
            name = stand.plan(victim, target, **MAINTENANCE)
            await stand.until_waits(name, "Replaced", "ReplacementPending")
            maintain(stand.cluster, victim["spec"]["nodeName"], on=False)
            stand.only(target)
            [status] = await stand.until_ended(name)
        assert closed(status)[:2] == ("Completed", "AsPlanned")


async def test_what_is_needed_of_the_past_is_kept_beyond_its_time(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        said = {"keepFinished": "0s", "lineageCooldown": "0s"}
        stand.config = RebalancerConfiguration.model_validate(said)
        stand.policy.remembers = True
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_ended(name)
            await stand.until(lambda: name in stand.policy.remembered, "it was to be removed")
            assert stand.migrations()
            stand.policy.remembers = False
            await stand.until(lambda: not stand.migrations(), "it is removed")


async def test_gates_are_asked_once_more_right_before_the_eviction(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.guard.verdict = Wait(Refusal("PdbUnsettled", "not counted yet", False), 0.05)
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Protected", "PdbUnsettled")
            stand.policy.refusal = lambda _: Refusal("Paused", "moves are paused", False)
            stand.guard.verdict = stand.guard.passed
            await stand.until_waits(name, "Evicted", "Paused")
            assert stand.deletions == []
            stand.policy.refusal = lambda _: None
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"


async def test_a_move_canceled_half_way_leaves_the_pod_clean(tmp_path: Path) -> None:
    """Deleting the Migration is how people stop a move."""
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.policy.not_acknowledged = BEHIND
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
            assert stand.marks(name)
            stand.cluster.store.delete(MIGRATIONS, name)
            await stand.until(lambda: not stand.marks(name), "the marks are gone")
            await stand.until(lambda: stand.guard.released == [name], "the guard is released")
        assert stand.deletions == []


async def test_marks_of_a_migration_that_vanished_unseen_are_swept(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.policy.not_acknowledged = BEHIND
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
        stand.cluster.store.delete(MIGRATIONS, name)
        assert stand.marks(name)
        async with stand.controller():
            await stand.until(lambda: not stand.marks(name), "the marks are gone")


async def test_marks_that_could_not_be_swept_are_swept_later(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.timing = replace(QUICK, sweep_s=0.05)
        stand.policy.not_acknowledged = BEHIND
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
        stand.cluster.store.delete(MIGRATIONS, name)
        fault = stand.cluster.faults.inject(
            ServerError(status=500, verbs=("patch",), resources=("pods",), times=2)
        )
        async with stand.controller():
            await stand.until(lambda: not stand.marks(name), "the marks are gone")
        stand.cluster.faults.withdraw(fault)


@pytest.mark.parametrize("status", [400, 500])
async def test_marks_that_cannot_be_removed_do_not_keep_a_move_from_its_end(
    status: int, tmp_path: Path
) -> None:
    """A webhook that denies answers 400, one that is down 500."""
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.timing = replace(QUICK, sweep_s=0.05)
        stand.policy.not_acknowledged = BEHIND
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
            fault = stand.cluster.faults.inject(
                ServerError(status=status, verbs=("patch",), resources=("pods",))
            )
            stand.policy.refusal = lambda _: Refusal("Protected", "it is to stay")
            stand.policy.not_acknowledged = None
            [found] = await stand.until_ended(name)
            assert found["phase"] == "Failed"
            assert stand.guard.released == [name]
            assert stand.marks(name)
            stand.cluster.faults.withdraw(fault)
            await stand.until(lambda: not stand.marks(name), "the marks are gone")
        assert stand.deletions == []


async def test_a_replacement_whose_mark_could_not_be_changed_says_later_that_it_has_come(
    tmp_path: Path,
) -> None:
    """It would seem to be on its way for as long as it lives."""
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.timing = replace(QUICK, sweep_s=0.05)
        refused = ServerError(status=500, verbs=("patch",), resources=("pods",))
        faults: list[int] = []

        def marked(change: Change) -> None:
            meta = change.obj["metadata"]
            said = (meta.get("labels") or {}).get(MIGRATION_STATUS_LABEL)
            if said and meta["uid"] != victim["metadata"]["uid"] and not faults:
                faults.append(stand.cluster.faults.inject(refused))

        stand.cluster.store.subscribe(PODS, marked)
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            [status] = await stand.until_ended(name)
            came = status["replacement"]["uid"]
            assert stand.marks_anywhere() == [came]
            stand.cluster.faults.withdraw(faults[0])
            await stand.until(lambda: not stand.marks_anywhere(), "nothing is in progress")
        labels = stand.record(came)["metadata"]["labels"]
        assert (labels[MIGRATION_ID_LABEL], labels[MIGRATION_STATUS_LABEL]) == (name, "completed")


async def test_nothing_is_evicted_if_stopped_in_the_last_moment(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.policy.switch = Refusal("Paused", "paused is set", permanent=False)
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Evicted", "NotSent")
            assert stand.deletions == []
            stand.policy.switch = None
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"
        assert status.get("attempts", 0) == 0


async def test_a_younger_sibling_on_the_target_cancels_the_move(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.policy.not_acknowledged = BEHIND
        async with stand.controller():
            name = stand.plan(victim, target)
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
            stand.only(target)
            patch = {"spec": {"replicas": 3}}
            stand.cluster.store.patch(DEPLOYMENTS, "web", patch, namespace="default")
            await stand.until(lambda: len(stand.ready()) == 3, "the sibling is Ready")
            stand.policy.not_acknowledged = None
            [status] = await stand.until_ended(name)
        assert closed(status) == ("Failed", "", "PlaceTaken")
        assert stand.deletions == []


@pytest.mark.parametrize("wrong", ["source", "pod", "controller"])
async def test_a_strangers_migration_that_contradicts_its_pod_evicts_nothing(
    wrong: str, tmp_path: Path
) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim, other = await stand.until_ready(2)
        first, second = stand.others(victim)[:2]
        meta = {**victim["metadata"], "name": other["metadata"]["name"]}
        said: dict[str, Json] = {
            "source": {"source": second},
            "pod": {"pod": {key: meta[key] for key in ("namespace", "name", "uid")}},
            "controller": {"controller": {"kind": "ReplicaSet", "name": "x", "uid": "x"}},
        }
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, first, **said[wrong]))
        assert stand.deletions == []
        assert status["phase"] == "Failed" or status["outcome"] == "NotReplaced"


async def test_a_target_that_is_gone_cancels_the_move(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.cluster.store.patch(NODES, target, {"spec": {"unschedulable": True}})
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, target))
        assert closed(status) == ("Failed", "", "TargetGone")
        assert stand.deletions == []


async def test_an_exhausted_budget_is_waited_for_and_never_broken(tmp_path: Path) -> None:
    budget = build.pdb("web", match={"app": "web"}, max_unavailable=1)
    async with migrating(tmp_path, build.deployment("web", 3), budget) as stand:
        lost, victim, _ = await stand.until_ready(3)
        stand.only()
        stand.cluster.store.delete(PODS, lost["metadata"]["name"], namespace="default")
        await stand.until(lambda: allowed(stand) == 0, "the budget is spent")
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "BudgetChecked", "PdbExhausted")
            assert stand.migration(name)["status"]["phase"] == "Pending"
            assert name not in stand.deletions
            assert "PdbExhausted" in stand.policy.known_against, "it keeps no place in a limit"
            stand.only(*stand.cluster.node_names())
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"
        assert status.get("attempts", 0) == 0


def allowed(stand: MigrationStand) -> int:
    status = stand.cluster.store.get(PDBS, "web", "default").get("status") or {}
    return int(status.get("disruptionsAllowed", 0))


async def test_moves_under_one_budget_go_one_after_the_other(tmp_path: Path) -> None:
    budget = build.pdb("web", match={"app": "web"}, max_unavailable=1)
    async with migrating(tmp_path, build.deployment("web", 4), budget) as stand:
        await stand.until_ready(4)
        victims = stand.movable("node-2")
        lowest = [4]
        stand.watch_pods(lambda _: lowest.append(len(stand.ready())))
        async with stand.controller():
            names = [stand.plan(pod, "node-2") for pod in victims]
            found = await stand.until_ended(*names)
        assert len(names) > 1
        assert {status.get("outcome") for status in found} == {"AsPlanned"}
        assert min(lowest) == 3
        assert {status.get("attempts", 0) for status in found} == {0}


async def test_a_temporary_budget_that_is_in_the_way_is_waited_for(tmp_path: Path) -> None:
    """The user's own has just come, and the watch has not shown it yet."""
    ours, theirs = [
        build.pdb(name, match={"app": "web"}, max_unavailable=1)
        for name in ("web-rescheduler-pdb", "web")
    ]
    ours["metadata"]["labels"] = {TEMPORARY_PDB_LABEL: "web"}
    async with migrating(tmp_path, build.deployment("web", 3), ours) as stand:
        victim = (await stand.until_ready(3))[0]
        async with stand.controller():
            stand.cluster.faults.inject(FreezeWatches(resources=(PDBS.plural,)))
            stand.cluster.create([theirs])
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "Evicted", "TemporaryPdbGivesWay")
            stand.cluster.store.delete(PDBS, "web-rescheduler-pdb", namespace="default")
            stand.cluster.faults.clear()
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"
        assert status.get("attempts", 0) == 0


async def test_a_second_budget_over_the_pod_fails_with_the_api_s_message(tmp_path: Path) -> None:
    budgets = [build.pdb(name, match={"app": "web"}, max_unavailable=1) for name in ("a", "b")]
    async with migrating(tmp_path, build.deployment("web", 3), *budgets) as stand:
        victim = (await stand.until_ready(3))[0]
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, stand.others(victim)[0]))
        assert closed(status) == ("Failed", "", "SeveralPdbs")
        assert stand.deletions == []
