"""kube-scheduler's answers: values to bytes.

What goes out is what the scheduler survives (pkg/scheduler/extender.go): PascalCase keys,
no null where it would follow the pointer, an integer score for every name, the names in the
order in which they came. Refused nodes go to `FailedAndUnresolvableNodes`, because those in
`FailedNodes` would be tried with preemption.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from extender.asking import Filtered, Marks, Victims
from extender.scoring import BEST
from extender.wire import NameLists, Question

_ENCODER: Final = msgspec.json.Encoder()
_FIRST: Final = b'[{"Host":'
_BETWEEN: Final = {score: b',"Score":%d},{"Host":' % score for score in range(11)}
_LAST: Final = {score: b',"Score":%d}]' % score for score in range(11)}
_AROUND: Final = len(b'{"Host":,"Score":0}')


def filter_answer(question: Question, verdict: Filtered, lists: NameLists) -> bytes:
    """Return ExtenderFilterResult, in the form in which the nodes came."""
    if question.items is not None:
        return _nodes_answer(question, question.items, verdict)
    if not verdict.failed:
        return b'{"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}' % (
            question.names_json
        )
    names = _ENCODER.encode(verdict.keep)
    lists.remember(names, verdict.keep)
    return b'{"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":%b,"Error":""}' % (
        names,
        _ENCODER.encode(verdict.failed),
    )


def _nodes_answer(question: Question, items: Sequence[Raw], verdict: Filtered) -> bytes:
    pairs = zip(items, question.names, strict=True)
    answer: dict[str, Any] = {  # Any: the parts of one JSON object
        "Nodes": {
            "metadata": {},
            "items": [item for item, name in pairs if name not in verdict.failed],
        },
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": verdict.failed,
        "Error": "",
    }
    return _ENCODER.encode(answer)


def prioritize_answer(
    names: Sequence[str], scores: Sequence[int], names_json: bytes = b""
) -> bytes:
    """Return HostPriorityList; raises if scores are missing or not within 0 to 10.

    `names_json` are the names as they came, if they came as names: cutting that text is
    several times quicker than looking each name up.
    """
    if not names and not scores:
        return b"[]"
    if isinstance(scores, Marks) and (whole := _whole(scores, names_json)):
        return whole
    parts = [b""] * (2 * len(names))
    parts[::2] = _quoted(names, names_json)
    parts[1::2] = map(_BETWEEN.__getitem__, scores)
    parts[-1] = _LAST[scores[-1]]
    return _FIRST + b"".join(parts)


def _whole(scores: Marks, names_json: bytes) -> bytes:
    """Return the answer that came with the scores, if it has the names as they came.

    Names that came in another form than the shortest, with spaces between or characters
    spelt out, make a text of another length.
    """
    if scores.written is None:
        return b""
    length = len(names_json) + _AROUND * len(scores) + scores.count(BEST)
    return scores.written if len(scores.written) == length else b""


def _quoted(names: Sequence[str], names_json: bytes) -> Sequence[bytes]:
    """Return each name as JSON."""
    found = names_json[1:-1].split(b",")
    # A comma within a name would make more parts than there are names.
    return found if len(found) == len(names) and names_json else list(map(_ENCODER.encode, names))


def preempt_answer(candidates: Mapping[str, Victims], keep: Collection[str]) -> bytes:
    """Return ExtenderPreemptionResult, always in its short form and without nulls."""
    wanted = frozenset(keep)
    kept = {
        name: {
            "Pods": [{"UID": uid} for uid in victims.pods],
            "NumPDBViolations": victims.violations,
        }
        for name, victims in candidates.items()
        if name in wanted
    }
    return _ENCODER.encode({"NodeNameToMetaVictims": kept})
