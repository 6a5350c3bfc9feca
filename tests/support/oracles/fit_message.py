# SPDX-License-Identifier: Apache-2.0
"""What the scheduler tells people about a pod that fits nowhere.

The form is that of FitError in pkg/scheduler/framework/types.go: every reason with the
number of nodes that it keeps the pod from. What preemption adds to it is not said here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from common.cluster.records import NodeName
from common.fit.question import Question
from common.fit.rejections import Rejection


def no_fit(question: Question, others: Mapping[NodeName, str] | None = None) -> str:
    """Return the message; `others` are nodes that someone else refused, with the reason."""
    nodes = question.world.snapshot.nodes
    if not nodes:
        return "no nodes available to schedule pods"
    start = f"0/{len(nodes)} nodes are available:"
    hopeless = _hopeless(question)
    if hopeless is not None:
        return f"{start} {hopeless.message}."
    reasons: Counter[str] = Counter((others or {}).values())
    for name in nodes:
        reasons.update(rejection.message for rejection in question.rejections(name, first=True))
    return f"{start} {', '.join(sorted(f'{n} {words}' for words, n in reasons.items()))}."


def _hopeless(question: Question) -> Rejection | None:
    """Return the reason that ends the search before any node is looked at."""
    for name in question.world.snapshot.nodes:
        return next((r for r in question.rejections(name) if r.everywhere), None)
    return None
