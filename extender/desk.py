"""Where a question becomes an answer: the three verbs, from body to body.

What a client got wrong is raised as `BadRequest`. Whatever else goes wrong while a verdict
is worked out or written down ends in the neutral answer, which needs nothing but the
question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from common.clock import Clock
from common.metrics import Metrics
from extender.answers import filter_answer, preempt_answer, prioritize_answer
from extender.asking import Verdicts
from extender.errors import BadRequest
from extender.neutral import Neutral, equal_scores, keep_all
from extender.wire import Lookup, NameLists, PodReader, read_preemption, read_question

if TYPE_CHECKING:
    from prometheus_client import Counter as Count


class Desk:
    """Turns the body of a request into the body of its answer."""

    def __init__(self, verdicts: Verdicts, lookup: Lookup, metrics: Metrics, clock: Clock) -> None:
        self._verdicts = verdicts
        self._pods = PodReader(lookup)
        self._lists = NameLists()
        self._neutral = Neutral(metrics, clock)
        self._refused = metrics.counter(
            "nodes_refused_total", "Nodes that a filter answer refused.", ("reason",)
        )
        self._by_reason: dict[str, Count] = {}
        seen = metrics.counter("nodes_seen_total", "Nodes that requests asked about.", ("verb",))
        self._filtered = seen.labels("filter")
        self._prioritized = seen.labels("prioritize")
        self._preempted = seen.labels("preempt")

    async def filter(self, body: bytes) -> bytes:
        question = read_question(body, self._lists)
        self._filtered.inc(len(question.names))
        try:
            verdict = await self._verdicts.filter(self._pods.read(question.pod), question.names)
            answer = filter_answer(question, verdict, self._lists)
            self._count(verdict.failed.values())
        except BadRequest:
            raise
        except Exception as error:
            self._neutral.failed("filter", error)
            return filter_answer(question, keep_all(question.names), self._lists)
        return answer

    async def prioritize(self, body: bytes) -> bytes:
        question = read_question(body, self._lists)
        self._prioritized.inc(len(question.names))
        try:
            pod = self._pods.read(question.pod)
            scores = self._verdicts.prioritize(pod, question.names)
            return prioritize_answer(question.names, scores, question.names_json)
        except BadRequest:
            raise
        except Exception as error:
            self._neutral.failed("prioritize", error)
            equal = equal_scores(question.names)
            return prioritize_answer(question.names, equal, question.names_json)

    async def preempt(self, body: bytes) -> bytes:
        asked = read_preemption(body)
        self._preempted.inc(len(asked.candidates))
        try:
            keep = self._verdicts.preempt(self._pods.read(asked.pod), asked.candidates)
            return preempt_answer(asked.candidates, keep)
        except BadRequest:
            raise
        except Exception as error:
            self._neutral.failed("preempt", error)
            return preempt_answer(asked.candidates, asked.candidates.keys())

    def _count(self, reasons: Iterable[str]) -> None:
        for reason, nodes in Counter(reasons).items():
            child = self._by_reason.get(reason)
            if child is None:
                child = self._by_reason[reason] = self._refused.labels(reason)
            child.inc(nodes)
