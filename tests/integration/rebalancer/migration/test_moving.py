# SPDX-License-Identifier: Apache-2.0
"""Pods moved on a living cluster, step by step, and where they come to run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from common.api.contract import MIGRATION_ID_LABEL, MIGRATION_STATUS_LABEL
from common.kube.resources import PODS
from rebalancer.pacing.extenders import Asked
from rebalancer.refusals import Refusal
from simulator import build
from simulator.api import Change, Json
from simulator.faults import SlowStarts
from tests.support.stands.extender import maintain
from tests.support.stands.migration import QUICK, MigrationStand, condition, migrating

STEPS = [
    *("BudgetChecked", "Marked", "Acknowledged", "Protected"),
    *("Evicted", "Replaced", "Ready", "CleanedUp"),
]


def ways(status: Json) -> tuple[str, str]:
    return status["phase"], status.get("outcome", "")


async def test_an_owned_pod_is_moved_end_to_end(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 3)) as stand:
        victim = (await stand.until_ready(3))[0]
        target = stand.others(victim)[0]
        stand.only(target)
        load = {"cpuMilli": 250.0, "memoryBytes": 2.0**26}
        async with stand.controller():
            name = stand.plan(victim, target, load=load, message="node is full")
            [status] = await stand.until_ended(name)
            assert stand.figure("migrations_total", outcome="AsPlanned", strategy="LoadBalancing")
            assert stand.figure("evictions_total", result="accepted") == 1
        assert ways(status) == ("Completed", "AsPlanned")
        assert status["replacement"]["node"] == target
        assert {c["status"] for c in status["conditions"]} == {"True"}
        assert [c["type"] for c in status["conditions"]] == STEPS
        assert {"startedAt", "evictedAt", "finishedAt"} <= status.keys()
        assert stand.deletions == [name]
        assert condition(stand.migration(name), "Evicted")["reason"] == "Evicted"
        assert len(stand.ready()) == 3
        started, told = (stand.events(r) for r in ("MigrationStarted", "MigrationCompleted"))
        source, owner = victim["spec"]["nodeName"], victim["metadata"]["ownerReferences"][0]
        around = {("Node", source), ("Node", target), ("ReplicaSet", owner["name"])}
        assert regarded(started) == {*around, ("Pod", victim["metadata"]["name"])}
        assert regarded(told) == {*around, ("Pod", status["replacement"]["name"])}
        assert all(event["regarding"]["uid"] for event in (*started, *told))
        pod, way = f"default/{victim['metadata']['name']}", f"from {source} to {target}"
        words = (
            f"Moving {pod}, which uses 250m CPU and 64 MiB, {way} for LoadBalancing: node is full"
        )
        assert {event["note"].startswith(words) for event in started} == {True}
        assert {f"Ready on {target}, as planned" in event["note"] for event in told} == {True}


def regarded(events: list[Json]) -> set[tuple[str, str]]:
    """Return the kinds and names of the objects that Events are about."""
    return {(event["regarding"]["kind"], event["regarding"]["name"]) for event in events}


@pytest.mark.parametrize("owner", ["deployment", "stateful_set"])
async def test_the_replacement_says_where_it_comes_from(owner: str, tmp_path: Path) -> None:
    """REQUIREMENTS R6.4, with the values."""
    async with migrating(tmp_path, getattr(build, owner)("web", 3)) as stand:
        victim = (await stand.until_ready(3))[0]
        source, target = victim["spec"]["nodeName"], stand.others(victim)[0]
        said: list[tuple[str, str]] = []

        def note(change: Change) -> None:
            labels = change.obj["metadata"].get("labels") or {}
            if labels.get(MIGRATION_ID_LABEL) == victim["metadata"]["uid"]:
                said.append((change.obj["metadata"]["uid"], labels[MIGRATION_STATUS_LABEL]))

        stand.cluster.store.subscribe(PODS, note)
        stand.only(target)
        async with stand.controller():
            name = stand.plan(victim, target)
            [status] = await stand.until_ended(name)
        uid = status["replacement"]["uid"]
        meta = stand.record(uid)["metadata"]
        assert marked(meta["labels"]) == {
            "migration-id": name,
            "migration-status": "completed",
            "migrated-from": source,
            "migration-reason": "LoadBalancing",
        }
        assert marked(meta["annotations"]) == {
            "migration-time": status["startedAt"],
            "original-pod": name,
            "original-pod-name": victim["metadata"]["name"],
        }
        in_order = list(dict.fromkeys(said))
        assert in_order == [(name, "in-progress"), (uid, "in-progress"), (uid, "completed")]


def marked(found: Json) -> Json:
    """Return what the keys of a move say, without their prefix."""
    prefix = "scheduler.alpha.kubernetes.io/"
    return {k.removeprefix(prefix): v for k, v in found.items() if k.startswith(prefix)}


async def test_a_replacement_that_does_not_start_says_that_the_move_failed(
    tmp_path: Path,
) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.only(target)
        stand.cluster.faults.inject(SlowStarts(factor=10_000.0))
        stand.give(3.0)
        async with stand.controller():
            name = stand.plan(victim, target)
            [status] = await stand.until_ended(name)
        assert ways(status) == ("Failed", "")
        labels = stand.record(status["replacement"]["uid"])["metadata"]["labels"]
        assert marked(labels)["migration-status"] == "failed"
        assert marked(labels)["migrated-from"] == victim["spec"]["nodeName"]


async def test_a_replacement_that_was_to_move_on_and_stays_has_its_marks_again(
    tmp_path: Path,
) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.only(target)
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, target))
            again = stand.record(status["replacement"]["uid"])
            before = marked(again["metadata"]["labels"])
            stand.policy.not_acknowledged = Refusal("NotAcknowledged", "e1 is behind", False)
            name = stand.plan(again, stand.others(again)[0], lasts_s=6.0)
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
            now = marked(stand.record(name)["metadata"]["labels"])
            assert (now["migration-id"], now["migration-status"]) == (name, "in-progress")
            await stand.until_ended(name)
        assert marked(stand.record(name)["metadata"]["labels"]) == before


@asynccontextmanager
async def one_to_move(folder: Path) -> AsyncIterator[tuple[MigrationStand, Json, str]]:
    """Run two pods; give one of them, and the node that takes new pods."""
    async with migrating(folder, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.only(target)
        yield stand, victim, target


@pytest.mark.parametrize(
    ("lands", "outcome"),
    [("alternative", "Alternative"), ("elsewhere", "Elsewhere"), ("source", "BackOnSource")],
)
async def test_the_outcome_says_where_the_replacement_came_to_run(
    lands: str, outcome: str, tmp_path: Path
) -> None:
    async with migrating(tmp_path, build.deployment("web", 2), nodes=4) as stand:
        victim = (await stand.until_ready(2))[0]
        target, alternative, elsewhere = stand.others(victim)
        source = victim["spec"]["nodeName"]
        places = {"alternative": alternative, "elsewhere": elsewhere, "source": source}
        stand.only(places[lands])
        async with stand.controller():
            name = stand.plan(victim, target, alternatives=[alternative])
            [status] = await stand.until_ended(name)
        assert ways(status) == ("Completed", outcome)


async def test_a_scheduler_that_asks_no_extender_is_found_out(tmp_path: Path) -> None:
    async with one_to_move(tmp_path) as (stand, victim, target):
        stand.policy.evidence = Asked.NO
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, target))
        assert ways(status) == ("Completed", "Unguided")


@pytest.mark.parametrize("evidence", [Asked.PENDING, Asked.UNKNOWN])
async def test_without_evidence_a_move_is_judged_by_where_it_led(
    evidence: Asked, tmp_path: Path
) -> None:
    """An extender that cannot write its Lease may have been asked all the same."""
    async with one_to_move(tmp_path) as (stand, victim, target):
        stand.policy.evidence = evidence
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, target))
        assert ways(status) == ("Completed", "AsPlanned")
        assert status["message"].endswith("; no extender could tell whether it was asked")


@pytest.mark.parametrize(
    ("evidence", "outcome"), [(Asked.YES, "AsPlanned"), (Asked.NO, "Unguided")]
)
async def test_evidence_is_waited_for(evidence: Asked, outcome: str, tmp_path: Path) -> None:
    async with one_to_move(tmp_path) as (stand, victim, target):
        stand.timing = replace(QUICK, guidance_s=3600.0)
        stand.policy.evidence = Asked.PENDING
        async with stand.controller():
            name = stand.plan(victim, target)
            await stand.until_waits(name, "Ready", "GuidanceUnknown")
            stand.policy.evidence = evidence
            [status] = await stand.until_ended(name)
        assert ways(status) == ("Completed", outcome)


async def test_a_node_that_is_emptied_does_not_wait_long_for_evidence(tmp_path: Path) -> None:
    async with one_to_move(tmp_path) as (stand, victim, target):
        maintain(stand.cluster, victim["spec"]["nodeName"], on=True)
        stand.timing = replace(QUICK, guidance_s=3600.0, guidance_maintenance_s=0.0)
        stand.policy.evidence = Asked.PENDING
        async with stand.controller():
            name = stand.plan(victim, target, strategy="NodeMaintenance", reason="Maintenance")
            [status] = await stand.until_ended(name)
        assert ways(status) == ("Completed", "AsPlanned")


async def test_a_deadline_does_not_fail_a_move_that_only_lacks_evidence(tmp_path: Path) -> None:
    async with one_to_move(tmp_path) as (stand, victim, target):
        stand.timing = replace(QUICK, guidance_s=3600.0)
        stand.policy.evidence = Asked.PENDING
        stand.give(4.0)
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, target))
        assert ways(status) == ("Completed", "AsPlanned")


async def test_moves_of_one_workload_each_find_their_own_replacement(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 6), nodes=4) as stand:
        await stand.until_ready(6)
        victims = stand.movable("node-3")
        async with stand.controller():
            names = [stand.plan(pod, "node-3") for pod in victims]
            found = await stand.until_ended(*names)
        assert len(names) > 2
        assert {ways(status) for status in found} == {("Completed", "AsPlanned")}
        assert len({status["replacement"]["uid"] for status in found}) == len(names)
        assert sorted(stand.deletions) == sorted(names)


async def test_a_stateful_set_pod_comes_back_under_its_name_and_is_left_alone(
    tmp_path: Path,
) -> None:
    async with migrating(tmp_path, build.stateful_set("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        target = stand.others(victim)[0]
        stand.only(target)
        async with stand.controller():
            [status] = await stand.until_ended(stand.plan(victim, target))
        assert ways(status) == ("Completed", "AsPlanned")
        assert status["replacement"]["name"] == victim["metadata"]["name"]
        assert status["replacement"]["uid"] != victim["metadata"]["uid"]
        assert stand.deletions == [victim["metadata"]["uid"]]


async def test_a_bare_pod_goes_only_when_its_copy_is_ready(tmp_path: Path) -> None:
    single = build.pod("single", labels={"app": "single"})
    async with migrating(tmp_path, single) as stand:
        [victim] = await stand.until_ready(1, "single")
        target = stand.others(victim)[0]
        stand.only(target)
        async with stand.controller():
            name = stand.plan(victim, target, replacementName="rescheduled-single-1")
            [status] = await stand.until_ended(name)
        assert ways(status) == ("Completed", "AsPlanned")
        found = {c["type"]: c["lastTransitionTime"] for c in status["conditions"]}
        assert "Protected" not in found
        assert found["Ready"] <= found["Evicted"]
        names = [p["metadata"]["name"] for p in stand.cluster.pods("default")]
        assert "rescheduled-single-1" in names


async def test_a_copy_that_does_not_get_ready_is_removed_and_the_original_stays(
    tmp_path: Path,
) -> None:
    single = build.pod("single", labels={"app": "single"})
    async with migrating(tmp_path, single) as stand:
        [victim] = await stand.until_ready(1, "single")
        stand.only()
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0], lasts_s=3.0, replacementName="copy")
            [status] = await stand.until_ended(name)
        assert ways(status) == ("Failed", "")
        assert status["message"].startswith("DeadlineExceeded")
        assert [p["metadata"]["name"] for p in stand.cluster.pods("default")] == ["single"]
        assert stand.marks(name) == set()


async def test_the_second_half_of_a_swap_waits_until_the_first_pod_is_gone(
    tmp_path: Path,
) -> None:
    slow = {build.STOP_AFTER: "50s"}
    first = build.deployment("one", 2, annotations=slow)
    async with migrating(tmp_path, first, build.deployment("two", 2)) as stand:
        one, two = (await stand.until_ready(2, "one"))[0], (await stand.until_ready(2, "two"))[0]
        seen: list[bool] = []

        def note(change: object) -> None:
            uids = {pod["metadata"]["uid"] for pod in stand.cluster.pods("default")}
            if two["metadata"]["uid"] in stand.deletions and not seen:
                seen.append(one["metadata"]["uid"] in uids)

        stand.watch_pods(note)
        async with stand.controller():
            second = stand.plan(two, stand.others(two)[0], needs=[one["metadata"]["uid"]])
            await stand.until_waits(second, "BudgetChecked", "WaitsForRoom")
            begun = stand.plan(one, stand.others(one)[0])
            await stand.until_ended(begun, second)
        assert seen == [False]
        assert stand.deletions == [begun, second]


async def test_a_swap_ends_if_the_first_half_does_not_go(tmp_path: Path) -> None:
    workloads = (build.deployment("one", 2), build.deployment("two", 2))
    async with migrating(tmp_path, *workloads) as stand:
        one, two = (await stand.until_ready(2, "one"))[0], (await stand.until_ready(2, "two"))[0]
        stays = one["metadata"]["uid"]
        never = Refusal("Protected", "it is protected")
        stand.policy.refusal = lambda m: never if m.name == stays else None
        async with stand.controller():
            names = (
                stand.plan(one, stand.others(one)[0]),
                stand.plan(two, stand.others(two)[0], needs=[stays]),
            )
            found = await stand.until_ended(*names)
        assert [status["message"].split(":")[0] for status in found] == ["Protected", "RoomNotMade"]
        assert stand.deletions == []


async def test_marks_show_on_the_pod_and_go_when_it_stays(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.policy.not_acknowledged = Refusal("NotAcknowledged", "e1 is behind", False)
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0], lasts_s=6.0)
            await stand.until_waits(name, "Acknowledged", "NotAcknowledged")
            labels = marked(stand.record(name)["metadata"]["labels"])
            assert labels == {"migration-id": name, "migration-status": "in-progress"}
            assert marked(stand.record(name)["metadata"].get("annotations", {})) == {}
            [status] = await stand.until_ended(name)
        assert ways(status) == ("Failed", "")
        assert stand.marks(name) == set()
        assert stand.deletions == []


async def test_a_finished_migration_is_kept_for_a_while_and_then_removed(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_ended(name)
        await restart_forgetfully(stand)
        assert stand.migrations() == []


async def restart_forgetfully(stand: MigrationStand) -> None:
    """Run a controller that keeps nothing."""
    stand.config = stand.config.model_validate({"keepFinished": "0s", "lineageCooldown": "0s"})
    async with stand.controller():
        await stand.until(lambda: not stand.migrations(), "finished Migrations are removed")
