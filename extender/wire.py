"""kube-scheduler's requests: bytes to values.

The scheduler's own structs carry no JSON tags (k8s.io/kube-scheduler/extender/v1/types.go),
so their keys are Go field names, and Go reads any letter case: of keys that differ only in
case the last one counts. Decoding tries the exact names in one pass first; whatever does
not fit is read again with folded keys, and only that second reading decides what is wrong.
The pod and the nodes inside are ordinary API objects in camelCase.

A null is absent (`common.null_json`), also as an element of a list: a node, a name or a victim
that is null is left out of the question and so out of the answer, where kube-scheduler would
follow the nil pointer and crash (pkg/scheduler/extender.go, convertToVictims).

Whatever the bytes are, reading them gives a value or raises `BadRequest`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from common.cluster.interning import Interner
from common.cluster.objects import ObjectMeta, Pod, Wire
from common.cluster.records import NodeName, PodRecord, PodUid, pod_record
from common.null_json import JsonDecoder
from extender.asking import AskedPod, Victims
from extender.errors import BadRequest, Reason, UnreadablePod

Lookup = Callable[[PodUid], PodRecord | None]
T = TypeVar("T")

_NULL: Final = b"null"
_LISTS_KEPT: Final = 4
_LARGEST_KEPT: Final = 1 << 20


class _Args(Struct, rename="pascal", forbid_unknown_fields=True, gc=False):
    """ExtenderArgs; an unknown key may be a known one in another case."""

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


class _PodStatus(Wire):
    nominated_node_name: str = ""


class _PodHead(Wire):
    metadata: _PodMeta = field(default_factory=_PodMeta)
    status: _PodStatus = field(default_factory=_PodStatus)


class _MetaPod(Struct, forbid_unknown_fields=True, gc=False):
    uid: str = field(name="UID")


class _FullPod(Wire):
    metadata: _PodMeta = field(default_factory=_PodMeta)


class _WholePod(Pod):
    """A pod of which a client may leave everything out."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


_Count = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _MetaVictims(Struct, forbid_unknown_fields=True, gc=False):
    # Without victims Go writes a nil slice as null.
    pods: list[_MetaPod] | None = field(name="Pods")
    violations: _Count = field(name="NumPDBViolations")


class _PreemptionArgs(Struct, rename="pascal", forbid_unknown_fields=True, gc=False):
    """ExtenderPreemptionArgs as it is sent to those who keep their own cache."""

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


class Question(NamedTuple):
    """What `filter` and `prioritize` are asked."""

    pod: Raw
    names: Sequence[str]
    names_json: bytes
    """The names as they came, without nulls; empty if nodes came instead."""
    items: Sequence[Raw] | None
    """The nodes as they came, if nodes came."""


class Preemption(NamedTuple):
    """What `preempt` is asked."""

    pod: Raw
    candidates: Mapping[str, Victims]


class NameLists:
    """Reads lists of names, and remembers the last ones.

    `prioritize` is sent exactly the list that `filter` left, so it is decoded once, and
    whoever looks at the same list again finds the hashes of its strings computed.
    """

    def __init__(self) -> None:
        self._known: deque[tuple[bytes, Sequence[str]]] = deque(maxlen=_LISTS_KEPT)

    def read(self, data: bytes) -> Sequence[str]:
        """Return the names in a JSON array; nobody may change the list."""
        for known, names in self._known:
            if known == data:
                return names
        read = _decoded(_NAMES, data, "NodeNames")
        self.remember(data, read)
        return read

    def remember(self, data: bytes, names: Sequence[str]) -> None:
        """Expect this list to come soon."""
        if len(data) <= _LARGEST_KEPT:
            self._known.appendleft((data, names))


class PodReader:
    """Reads the pod of a request: from the cache if it is there, else from the request.

    `prioritize` is sent the very pod that `filter` was, so the last one is remembered.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._shared = Interner()
        self._last: tuple[bytes, _PodHead] = (b"", _PodHead())
        self._last_parsed: tuple[bytes, PodRecord | None] = (b"", None)

    def read(self, data: Raw) -> AskedPod:
        """Return the pod; raise `UnreadablePod` if only its contents are nonsense."""
        text = bytes(data)
        head = self._head(text)
        meta, uid = head.metadata, PodUid(head.metadata.uid)
        return AskedPod(
            namespace=meta.namespace,
            name=meta.name,
            uid=uid,
            nominated_node=NodeName(head.status.nominated_node_name),
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


def read_question(body: bytes, lists: NameLists) -> Question:
    """Read ExtenderArgs; NodeNames count if both forms of the nodes are there."""
    pod, nodes, names = _args(body)
    _need_pod(pod)
    if names != _NULL:
        names = _without_nulls(names)
        return Question(pod, lists.read(names), names, None)
    if _is_null(nodes):
        raise BadRequest(Reason.NO_NODES, "neither NodeNames nor Nodes are given")
    _need_utf8(body)
    items = [item for item in _decoded(_ITEMS, nodes, "Nodes").items or () if not _is_null(item)]
    heads = [_decoded(_NODE_HEAD, item, f"Nodes.items[{i}]") for i, item in enumerate(items)]
    return Question(pod, [head.metadata.name for head in heads], b"", items)


def _args(body: bytes) -> tuple[Raw, Raw, bytes]:
    try:
        args = _ARGS.decode(body)
    except (ValueError, RecursionError):
        folded, none = _folded(body, "the body"), Raw(_NULL)
        names = bytes(folded.get("nodenames", none))
        return folded.get("pod", none), folded.get("nodes", none), names
    return args.pod, args.nodes, bytes(args.node_names)


def _without_nulls(names: bytes) -> bytes:
    """Return a list of names as it came, unless there is a null among them."""
    if _NULL not in names:  # a name may have that in it
        return names
    found = _decoded(_NULLABLE_NAMES, names, "NodeNames")
    return msgspec.json.encode([n for n in found if n is not None]) if None in found else names


def read_preemption(body: bytes) -> Preemption:
    """Read ExtenderPreemptionArgs; the short form of the victims counts if both are there."""
    try:
        args = _PREEMPTION_ARGS.decode(body)
    except (ValueError, RecursionError):
        return _preemption_slowly(body)
    _need_pod(args.pod)
    found = args.node_name_to_meta_victims
    return Preemption(
        args.pod,
        {
            name: Victims([PodUid(pod.uid) for pod in victims.pods or ()], victims.violations)
            for name, victims in found.items()
        },
    )


def _preemption_slowly(body: bytes) -> Preemption:
    folded, none = _folded(body, "the body"), Raw(_NULL)
    pod = folded.get("pod", none)
    _need_pod(pod)
    short, long = folded.get("nodenametometavictims", none), folded.get("nodenametovictims", none)
    if not _is_null(short):
        return Preemption(pod, _victims(short, "NodeNameToMetaVictims", _short_uid))
    if not _is_null(long):
        return Preemption(pod, _victims(long, "NodeNameToVictims", _long_uid))
    raise BadRequest(
        Reason.NO_NODES, "neither NodeNameToMetaVictims nor NodeNameToVictims are given"
    )


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
        # A node of whose victims none is left must not look like one that needs none.
        if named or not pods:
            violations = _decoded(_COUNT, folded.get("numpdbviolations", _NULL), here) or 0
            found[name] = Victims(named, violations)
    return found


def _short_uid(data: Raw, where: str) -> PodUid:
    return PodUid(_decoded(_UID, _folded(data, where).get("uid", _NULL), f"{where}.UID") or "")


def _long_uid(data: Raw, where: str) -> PodUid:
    return PodUid(_decoded(_FULL_POD, data, where).metadata.uid)


def _is_null(data: Raw) -> bool:
    return bytes(data) == _NULL


def _need_pod(data: Raw) -> None:
    if _is_null(data):
        raise BadRequest(Reason.NO_POD, "no Pod is given")


def _need_utf8(body: bytes) -> None:
    """Make sure that parts of the body can be sent back: what is skipped is not looked at."""
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
