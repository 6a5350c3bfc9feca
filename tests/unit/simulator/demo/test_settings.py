# SPDX-License-Identifier: Apache-2.0
"""The configuration of a demo, and what it shows of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from common.api.objects import Deployment, Pod, ReplicaSet
from common.cache.state import ClusterState
from common.config import load_settings_hash
from simulator import build
from simulator.demo import settings
from simulator.demo.availability import Availability, Shortage, describe_shortages
from simulator.demo.next_steps import RunningDemo, steps_while_running

NOT_WAITS = {"apiVersion", "kind", "mode", "enabledStrategies", "leaderElection"}


def test_every_wait_that_differs_is_named_beside_its_default(tmp_path: Path) -> None:
    found = settings.load(tmp_path)
    written = yaml.safe_load(found.rebalancer_file.read_text())
    assert len(set(written) - NOT_WAITS) == found.waits().count("(")
    assert "cycle every 3 s (default 30 s)" in found.waits()


def test_both_programs_take_the_same_for_load(tmp_path: Path) -> None:
    found = settings.load(tmp_path)
    assert load_settings_hash(found.extender) == load_settings_hash(found.rebalancer)


def test_the_scheduler_gets_the_file_that_users_copy(tmp_path: Path) -> None:
    made = yaml.safe_load(settings.scheduler_config(tmp_path, 4321).read_text())
    shipped = yaml.safe_load(settings.SCHEDULER.read_text())
    assert made["extenders"][0].pop("urlPrefix") == "http://127.0.0.1:4321"
    assert shipped["extenders"][0].pop("urlPrefix")
    assert made == shipped


class Replicas:
    """A Deployment of three pods, as the watches tell of it."""

    def __init__(self) -> None:
        self.state, self.counted = ClusterState(), Availability()
        self.state.pods.listen(self.counted.on_pod)
        web, owned = build.deployment("web", 3), build.replica_set("web-5d9f", 3)
        web["metadata"]["uid"], owned["metadata"]["uid"] = "d", "r"
        owned["metadata"]["ownerReferences"] = [_owner("apps/v1", "Deployment", "web", "d")]
        self.state.deployments.upsert(msgspec.convert(web, Deployment))
        self.state.replica_sets.upsert(msgspec.convert(owned, ReplicaSet))
        for name in "abc":
            self.pod(name)
        self.counted.begin()

    def pod(self, name: str, *, ready: bool = True, ending: bool = False) -> None:
        made = build.pod(name, node="node-1")
        made["metadata"] |= {
            "uid": name,
            "ownerReferences": [_owner("apps/v1", "ReplicaSet", "web-5d9f", "r")],
        }
        if ending:
            made["metadata"]["deletionTimestamp"] = "2026-11-16T09:00:00Z"
        status = "True" if ready else "False"
        made["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}
        self.state.pods.upsert(msgspec.convert(made, Pod))

    def shortages(self) -> list[Shortage]:
        return self.counted.shortages(self.state.snapshot())


def _owner(version: str, kind: str, name: str, uid: str) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


def test_a_replica_that_is_ending_or_not_ready_is_missing_even_for_a_moment() -> None:
    replicas = Replicas()
    replicas.pod("a", ending=True)
    replicas.pod("b", ready=False)
    replicas.pod("b")
    replicas.pod("new")
    assert replicas.shortages() == [Shortage("web", 2, 3)]


def test_no_replica_is_missing_where_nothing_happened() -> None:
    replicas = Replicas()
    replicas.pod("new")
    replicas.pod("a", ending=True)
    assert replicas.shortages() == []
    assert describe_shortages([]) == "every workload kept all replicas"


def test_workloads_that_missed_as_much_are_named_together() -> None:
    shortages = [Shortage("a", 1, 5), Shortage("b", 2, 5), Shortage("c", 1, 5)]
    assert describe_shortages(shortages) == (
        "replicas unavailable at most: 2 of 5 (b), 1 of 5 (a, c)"
    )


@pytest.mark.parametrize("kubectl", ["kubectl", ""])
def test_what_to_try_next_names_everything_that_is_needed(kubectl: str, tmp_path: Path) -> None:
    running = RunningDemo(
        kubeconfig=tmp_path / "a folder" / "kubeconfig",
        server="http://127.0.0.1:1",
        kubectl=kubectl,
        node="node-7",
        extender_pid=41,
        rebalancer_pid=42,
        cluster="cluster 40",
        console="http://127.0.0.1:2",
        extender_command="python -m extender --port 3",
    )
    text = "\n".join(steps_while_running(running))
    label = "scheduler.alpha.kubernetes.io/maintenance"
    assert "kill 41\n" in text
    assert "python -m extender --port 3\n" in text
    assert "http://127.0.0.1:2" in text
    assert label in text
    assert ("kubectl --kubeconfig '" in text) is bool(kubectl)
    assert ("curl -X PATCH" in text) is not bool(kubectl)
