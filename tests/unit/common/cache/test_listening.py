# SPDX-License-Identifier: Apache-2.0
"""A listener of a table hears every change once, in order, after it was made."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from common.api.objects import Pod
from common.cache.state import ClusterState
from common.cache.tables import Table
from common.cluster.interning import Interner
from common.cluster.records import PodRecord
from simulator import build
from tests.support.worlds.wire import wire_pod


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


def test_a_listener_that_fails_keeps_nobody_from_hearing() -> None:
    odd, heard = list[tuple[str, str, str]](), list[str]()
    state = ClusterState(lambda *told: odd.append(told))

    def fail(_old: PodRecord | None, _new: PodRecord | None) -> None:
        raise KeyError("not thought of")

    state.pods.listen(fail)
    state.pods.listen(lambda _, new: heard.append(new.key if new is not None else "gone"))
    with capture_logs() as logs:
        state.pods.upsert(wire_pod(build.pod("a")))
        state.pods.forget("default/a")
    assert heard == ["default/a", "gone"]
    assert odd == [("Pod", "default/a", "ListenerFailed")] * 2
    assert [each["event"] for each in logs] == ["listener failed"] * 2


@pytest.mark.parametrize("error", [OverflowError("too much"), RecursionError(), KeyError("x")])
def test_an_object_that_cannot_be_parsed_is_refused_before_anything_changes(
    error: Exception,
) -> None:
    def parse(wire: Pod, _: Interner) -> str:
        if wire.metadata.name == "odd":
            raise error
        return wire.metadata.name

    changes = list[str]()
    table = Table(parse, Interner(), lambda: changes.append("one"))
    table.upsert(wire_pod(build.pod("a")))
    with pytest.raises(ValueError, match=type(error).__name__):
        table.upsert(wire_pod(build.pod("odd")))
    assert list(table.keys()) == ["default/a"]
    assert changes == ["one"]
