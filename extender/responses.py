# SPDX-License-Identifier: Apache-2.0
"""The responses to kube-scheduler: values to bytes.

Only what kube-scheduler handles safely goes out (pkg/scheduler/extender.go): PascalCase keys,
no null where it would follow the pointer, an integer score for every name, the names in the
order of the request. Rejected nodes go to `FailedAndUnresolvableNodes`, because preemption
would try those in `FailedNodes` (`findNodesThatPassExtenders` in
pkg/scheduler/schedule_one.go gives them the status Unschedulable).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from extender.protocol import FilterResult, Scores, Victims
from extender.requests import ExtenderRequest, NameLists
from extender.scoring import BEST

_ENCODER: Final = msgspec.json.Encoder()
_FIRST: Final = b'[{"Host":'
_BETWEEN: Final = {score: b',"Score":%d},{"Host":' % score for score in range(11)}
_LAST: Final = {score: b',"Score":%d}]' % score for score in range(11)}
_AROUND: Final = len(b'{"Host":,"Score":0}')


def filter_response(request: ExtenderRequest, result: FilterResult, lists: NameLists) -> bytes:
    """Return ExtenderFilterResult, with names or whole nodes as in the request."""
    if request.items is not None:
        return _nodes_response(request, request.items, result)
    if len(result.keep) == len(request.names):
        return b'{"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}' % (
            request.names_json
        )
    names = _ENCODER.encode(list(result.keep))
    lists.remember(names, result.keep)
    return b'{"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":%b,"Error":""}' % (
        names,
        _ENCODER.encode(result.failed),
    )


def _nodes_response(request: ExtenderRequest, items: Sequence[Raw], result: FilterResult) -> bytes:
    pairs, keep = zip(items, request.names, strict=True), frozenset(result.keep)
    response: dict[str, Any] = {  # Any: the parts of one JSON object
        "Nodes": {
            "metadata": {},
            "items": [item for item, name in pairs if name in keep],
        },
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": result.failed,
        "Error": "",
    }
    return _ENCODER.encode(response)


def prioritize_response(names: Sequence[str], scores: Scores, names_json: bytes = b"") -> bytes:
    """Return HostPriorityList; raise if scores are missing or not within 0 to 10.

    `names_json` is the list of names as received, if names were sent: splitting that text is
    several times faster than encoding each name.
    """
    values = scores.values
    if not names and not values:
        return b"[]"
    if scores.encoded is not None and _has_names_as_received(scores.encoded, values, names_json):
        return scores.encoded
    parts = [b""] * (2 * len(names))
    parts[::2] = _quoted(names, names_json)
    parts[1::2] = map(_BETWEEN.__getitem__, values)
    parts[-1] = _LAST[values[-1]]
    return _FIRST + b"".join(parts)


def _has_names_as_received(encoded: bytes, values: Sequence[int], names_json: bytes) -> bool:
    """Return whether an encoded list has the names in the form in which they were received.

    Names that were not sent in their shortest form, with spaces in between or characters
    written as escapes, make a text of another length.
    """
    return len(encoded) == len(names_json) + _AROUND * len(values) + values.count(BEST)


def _quoted(names: Sequence[str], names_json: bytes) -> Sequence[bytes]:
    """Return each name as JSON."""
    found = names_json[1:-1].split(b",")
    # A comma within a name makes more parts than there are names.
    return found if len(found) == len(names) and names_json else list(map(_ENCODER.encode, names))


def preempt_response(candidates: Mapping[str, Victims], keep: Collection[str]) -> bytes:
    """Return ExtenderPreemptionResult: meta victims only, and no nulls."""
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
