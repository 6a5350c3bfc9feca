# SPDX-License-Identifier: Apache-2.0
"""What a pod is told that fits nowhere (FitError in pkg/scheduler/framework/types.go)."""

from __future__ import annotations

from simulator.scheduler.diagnosis import Diagnosis, Status, fit_error, preemption_message


def test_reasons_are_counted_and_sorted_as_text() -> None:
    reasons = [["Insufficient cpu"]] * 3 + [["Insufficient cpu", "Insufficient memory"]] * 10
    reasons += [["node(s) had untolerated taint(s)"]] * 7
    assert fit_error(20, reasons) == (
        "0/20 nodes are available: 10 Insufficient memory, 13 Insufficient cpu, "
        "7 node(s) had untolerated taint(s)."
    )


def test_a_pod_that_fits_no_node_at_all_is_told_why_once() -> None:
    words = "pod affinity terms conflict"
    assert fit_error(5, [["ignored"]], words) == f"0/5 nodes are available: {words}."


def test_nodes_refused_without_a_reason_leave_the_message_short() -> None:
    assert fit_error(3, []) == "0/3 nodes are available:"


def test_what_preemption_came_to_follows() -> None:
    found = Diagnosis(3)
    found.refuse("a", Status(("Insufficient cpu",), "NodeResourcesFit", resolvable=True))
    found.refuse("b", Status(("Insufficient cpu",), "NodeResourcesFit", resolvable=True))
    found.refuse("c", Status(("node(s) were unschedulable",), "NodeUnschedulable"))
    after = preemption_message(
        3, dict.fromkeys("ab", ("No preemption victims found for incoming pod",))
    )
    assert found.message(after) == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: "
        "1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )
    assert found.plugins == {"NodeResourcesFit", "NodeUnschedulable"}
