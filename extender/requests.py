# SPDX-License-Identifier: Apache-2.0
"""kube-scheduler's requests: bytes to values.

The structs of the extender API carry no JSON tags
(staging/src/k8s.io/kube-scheduler/extender/v1/types.go), so their keys are Go field names,
and Go accepts any letter case: of keys that differ only in case the last one counts. The
exact names are tried first, in one pass; a body that does not match is read again with
case-folded keys, and only that second reading decides what is wrong. The pod and the nodes
inside are ordinary API objects in camelCase.

A null is absent (`common.null_json`), also as an element of a list: a node, a name or a victim
that is null is left out of the request and so out of the response, where kube-scheduler would
follow the nil pointer and crash (`convertToVictims` in pkg/scheduler/extender.go).

Whatever the bytes are, reading them gives a value or raises `BadRequest`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from common.api.objects import ObjectMeta, Pod, Wire
from common.cluster.interning import Interner
from common.cluster.records import NodeName, PodRecord, PodUid, pod_record
from common.null_json import JsonDecoder
from extender.errors import BadRequest, Reason, UnreadablePod
from extender.protocol import RequestPod, Victims
from extender.scoring import NameIndex

PodLookup = Callable[[PodUid], PodRecord | None]
KnownIndex = Callable[[], NameIndex | None]
T = TypeVar("T")

_NULL: Final = b"null"
_GATED: Final = "SchedulingGated"
_MAX_LISTS: Final = 4
_MAX_LIST_BYTES: Final = 1 << 20


class _Args(Struct, rename="pascal", forbid_unknown_fields=True, gc=False):
    """ExtenderArgs; an unknown key may be a known one in another letter case."""

    pod: Raw
    nodes: Raw
    node_names: Raw


class _Items(Wire):
    items: list[Raw] | None = None


class _NameMeta(Wire):
    name: str


class _NodeHead(Wire):
    metadata: _NameMeta


class _PodMeta(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""


class _PodStatus(Wire):
    nominated_node_name: str = ""
    conditions: list[_Condition] | None = None

    @property
    def tried(self) -> bool:
        """Whether a scheduler reports that it did not place the pod.

        The API server reports the same of a pod with scheduling gates, and leaves that when they
        are gone (`applySchedulingGatedCondition` in pkg/registry/core/pod/strategy.go).
        """
        return any(
            c.type == "PodScheduled" and c.status == "False" and c.reason != _GATED
            for c in self.conditions or ()
        )


class _PodHead(Wire):
    metadata: _PodMeta = field(default_factory=_PodMeta)
    status: _PodStatus = field(default_factory=_PodStatus)


class _MetaPod(Struct, forbid_unknown_fields=True, gc=False):
    uid: str = field(name="UID")


class _FullPod(Wire):
    metadata: _PodMeta = field(default_factory=_PodMeta)


class _WholePod(Pod):
    """A pod in which every field is optional."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


_Count = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _MetaVictims(Struct, forbid_unknown_fields=True, gc=False):
    # Go encodes a nil slice as null.
    pods: list[_MetaPod] | None = field(name="Pods")
    violations: _Count = field(name="NumPDBViolations")


class _PreemptionArgs(Struct, rename="pascal", forbid_unknown_fields=True, gc=False):
    """ExtenderPreemptionArgs as sent with `nodeCacheCapable: true`."""

    pod: Raw
    node_name_to_victims: None
    node_name_to_meta_victims: dict[str, _MetaVictims]


_ARGS: Final = msgspec.json.Decoder(_Args)
_PREEMPTION_ARGS: Final = msgspec.json.Decoder(_PreemptionArgs)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_NAMES: Final = msgspec.json.Decoder(list[str])
_NULLABLE_NAMES: Final = msgspec.json.Decoder(list[str | None])
_ITEMS: Final = msgspec.json.Decoder(_Items)
_NODE_HEAD: Final = JsonDecoder(_NodeHead)
_POD_HEAD: Final = JsonDecoder(_PodHead)
_POD: Final = JsonDecoder(_WholePod)
_VICTIM_PODS: Final = msgspec.json.Decoder(list[Raw] | None)
_FULL_POD: Final = JsonDecoder(_FullPod)
_UID: Final = msgspec.json.Decoder(str | None)
_COUNT: Final = msgspec.json.Decoder(_Count | None)


class ExtenderRequest(NamedTuple):
    """A request to `filter` or `prioritize`."""

    pod: Raw
    names: Sequence[str]
    names_json: bytes
    """The names as received, without nulls; empty if whole nodes were sent instead."""
    items: Sequence[Raw] | None
    """The nodes as received, if whole nodes were sent."""


class PreemptionRequest(NamedTuple):
    """A request to `preempt`."""

    pod: Raw
    candidates: Mapping[str, Victims]


class NameLists:
    """Decodes lists of names, and caches the last ones.

    `prioritize` is sent exactly the list that `filter` left, so it is decoded once, and the
    hashes of its strings are computed once.
    """

    def __init__(self, index: KnownIndex = lambda: None) -> None:
        """`index` returns the nodes that are known: lists of those need not be decoded."""
        self._index = index
        self._known: deque[tuple[bytes, Sequence[str]]] = deque(maxlen=_MAX_LISTS)

    def read(self, data: bytes) -> tuple[Sequence[str], bytes]:
        """Return the names in a JSON array, and the array without its nulls.

        The list is shared and must not be changed.
        """
        for place, (known, names) in enumerate(self._known):
            if known == data:
                self._known.rotate(-place)  # the one that was not needed for longest is dropped
                return names, data
        index = self._index()
        read: Sequence[str] | None = None if index is None else index.find(data)
        if read is None:
            data = _without_nulls(data)
            read = _decoded(_NAMES, data, "NodeNames")
        self.remember(data, read)
        return read, data

    def remember(self, data: bytes, names: Sequence[str]) -> None:
        """Cache a list that is expected soon."""
        if len(data) <= _MAX_LIST_BYTES:
            self._known.appendleft((data, names))


class PodReader:
    """Finds the pod of a request in the watch cache, or else decodes it.

    `prioritize` is sent the same pod as `filter`, so the last one is remembered.
    """

    def __init__(self, lookup: PodLookup) -> None:
        self._lookup = lookup
        self._shared = Interner()
        self._last: tuple[bytes, _PodHead] = (b"", _PodHead())
        self._last_parsed: tuple[bytes, PodRecord | None] = (b"", None)

    def read(self, data: Raw) -> RequestPod:
        """Return the pod; raise `UnreadablePod` if a value inside it cannot be parsed."""
        text = bytes(data)
        head = self._head(text)
        meta, uid = head.metadata, PodUid(head.metadata.uid)
        return RequestPod(
            namespace=meta.namespace,
            name=meta.name,
            uid=uid,
            nominated_node=NodeName(head.status.nominated_node_name),
            tried=head.status.tried,
            record=self._lookup(uid) or self._parsed(text),
        )

    def _head(self, data: bytes) -> _PodHead:
        if self._last[0] != data:
            self._last = data, _decoded(_POD_HEAD, data, "Pod")
        return self._last[1]

    def _parsed(self, data: bytes) -> PodRecord:
        known, record = self._last_parsed
        if record is None or known != data:
            record = self._record(data)
            self._last_parsed = data, record
        return record

    def _record(self, data: bytes) -> PodRecord:
        pod = _decoded(_POD, data, "Pod")
        try:
            return pod_record(pod, self._shared)
        except (ValueError, ArithmeticError) as error:
            raise UnreadablePod(f"{pod.metadata.namespace}/{pod.metadata.name}: {error}") from error


def read_request(body: bytes, lists: NameLists) -> ExtenderRequest:
    """Read ExtenderArgs; NodeNames take precedence over Nodes."""
    pod, nodes, names = _args(body)
    _need_pod(pod)
    if names != _NULL:
        return ExtenderRequest(pod, *lists.read(names), None)
    if _is_null(nodes):
        raise BadRequest(Reason.NO_NODES, "NodeNames or Nodes must be set")
    _need_utf8(body)
    items = [item for item in _decoded(_ITEMS, nodes, "Nodes").items or () if not _is_null(item)]
    heads = [_decoded(_NODE_HEAD, item, f"Nodes.items[{i}]") for i, item in enumerate(items)]
    return ExtenderRequest(pod, [head.metadata.name for head in heads], b"", items)


def _args(body: bytes) -> tuple[Raw, Raw, bytes]:
    try:
        args = _ARGS.decode(body)
    except (ValueError, RecursionError):
        folded, none = _folded(body, "the body"), Raw(_NULL)
        names = bytes(folded.get("nodenames", none))
        return folded.get("pod", none), folded.get("nodes", none), names
    return args.pod, args.nodes, bytes(args.node_names)


def _without_nulls(names: bytes) -> bytes:
    """Return a list of names as received, or without its nulls if there are any."""
    if _NULL not in names:  # a quick check: a name may contain it too
        return names
    found = _decoded(_NULLABLE_NAMES, names, "NodeNames")
    return msgspec.json.encode([n for n in found if n is not None]) if None in found else names


def read_preemption_request(body: bytes) -> PreemptionRequest:
    """Read ExtenderPreemptionArgs; NodeNameToMetaVictims take precedence."""
    try:
        args = _PREEMPTION_ARGS.decode(body)
    except (ValueError, RecursionError):
        return _read_any_case_preemption(body)
    _need_pod(args.pod)
    found = args.node_name_to_meta_victims
    return PreemptionRequest(
        args.pod,
        {
            name: Victims([PodUid(pod.uid) for pod in victims.pods or ()], victims.violations)
            for name, victims in found.items()
        },
    )


def _read_any_case_preemption(body: bytes) -> PreemptionRequest:
    folded, none = _folded(body, "the body"), Raw(_NULL)
    pod = folded.get("pod", none)
    _need_pod(pod)
    meta, full = folded.get("nodenametometavictims", none), folded.get("nodenametovictims", none)
    if not _is_null(meta):
        return PreemptionRequest(pod, _victims(meta, "NodeNameToMetaVictims", _meta_pod_uid))
    if not _is_null(full):
        return PreemptionRequest(pod, _victims(full, "NodeNameToVictims", _pod_uid))
    raise BadRequest(Reason.NO_NODES, "NodeNameToMetaVictims or NodeNameToVictims must be set")


def _victims(data: Raw, where: str, uid: Callable[[Raw, str], PodUid]) -> dict[str, Victims]:
    found: dict[str, Victims] = {}
    for name, raw in _decoded(_OBJECT, data, where).items():
        here = f"{where}.{name}"
        if _is_null(raw):
            continue
        folded = _folded(raw, here)
        pods = _decoded(_VICTIM_PODS, folded.get("pods", _NULL), f"{here}.Pods") or ()
        uids = [uid(pod, f"{here}.Pods") for pod in pods if not _is_null(pod)]
        named = [each for each in uids if each]
        # A node whose victims were all unnamed must not look like a node that needs none.
        if named or not pods:
            violations = _decoded(_COUNT, folded.get("numpdbviolations", _NULL), here) or 0
            found[name] = Victims(named, violations)
    return found


def _meta_pod_uid(data: Raw, where: str) -> PodUid:
    return PodUid(_decoded(_UID, _folded(data, where).get("uid", _NULL), f"{where}.UID") or "")


def _pod_uid(data: Raw, where: str) -> PodUid:
    return PodUid(_decoded(_FULL_POD, data, where).metadata.uid)


def _is_null(data: Raw) -> bool:
    return bytes(data) == _NULL


def _need_pod(data: Raw) -> None:
    if _is_null(data):
        raise BadRequest(Reason.NO_POD, "Pod must be set")


def _need_utf8(body: bytes) -> None:
    """Check that nodes can be sent back as received: msgspec does not validate skipped text."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(Reason.NOT_JSON, f"the body is not UTF-8: {error}") from None


def _folded(data: bytes | Raw, where: str) -> dict[str, Raw]:
    return {key.casefold(): value for key, value in _decoded(_OBJECT, data, where).items()}


def _decoded(decoder: msgspec.json.Decoder[T] | JsonDecoder[T], data: bytes | Raw, where: str) -> T:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise BadRequest(Reason.WRONG_TYPE, f"{where}: {error}") from None
    except ValueError as error:
        raise BadRequest(Reason.NOT_JSON, f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest(Reason.TOO_DEEP, f"{where} is nested too deeply") from None
