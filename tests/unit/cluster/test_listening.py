"""Whoever listens to a table hears every change once, in order, after it was made."""

from __future__ import annotations

from common.cluster.records import PodRecord
from common.cluster.state import ClusterState
from simulator import build
from tests.support.wire import wire_pod


def test_changes_are_told_after_they_were_made() -> None:
    state, heard = ClusterState(), []

    def hear(old: PodRecord | None, new: PodRecord | None) -> None:
        known = state.snapshot().pods_by_name.get("default/a")
        heard.append((old and old.node, new and new.node, known is new))

    state.pods.listen(hear)
    pending, bound = wire_pod(build.pod("a")), wire_pod(build.pod("a", node="n1"))
    state.pods.upsert(pending)
    state.pods.upsert(pending)
    state.pods.upsert(bound)
    state.pods.delete(bound)
    assert heard == [(None, "", True), ("", "n1", True), ("n1", None, True)]


def test_what_vanished_unseen_is_told_too() -> None:
    state, gone = ClusterState(), []
    state.pods.upsert(wire_pod(build.pod("a")))
    state.pods.listen(lambda old, new: gone.append((old is not None, new)))
    state.pods.forget("default/a")
    state.pods.forget("default/a")
    assert gone == [(True, None)]
