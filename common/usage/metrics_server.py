# SPDX-License-Identifier: Apache-2.0
"""Usage from metrics-server: one LIST of nodes, one of pods.

A `timestamp` is the end of the window that a figure is the average of (k8s.io/metrics,
pkg/apis/metrics/v1beta1/types.go), cut to whole seconds on the wire; so a window never
seems to begin later than it did. An entry that makes no sense is skipped, and its node or
pod counts as not measured: one broken entry must not blind us to all others. A list that
cannot be had or read, or is larger than `MAX_LIST_BYTES`, fails the whole round.

Pods are read a piece of the list at a time, into columns, by types that fit what
metrics-server writes and nothing else. A piece with anything else in it is read again entry by
entry, which decides what makes sense; a list that cannot be cut is read so as a whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

import msgspec
import structlog

from common.api.objects import Quantities
from common.checkpoint import Checkpoint, no_checkpoint
from common.cluster.quantities import milli, whole
from common.cluster.records import NodeName
from common.config import SourceKind
from common.http_body import MIB
from common.kube.api import KubeApi
from common.kube.errors import KubeError
from common.kube.resources import NODE_METRICS, POD_METRICS, Resource
from common.null_json import UNDECODABLE, JsonDecoder
from common.usage.columns import UsageColumns, UsageWriter
from common.usage.list_pieces import list_pieces
from common.usage.plain_numbers import parsed
from common.usage.source import Sample, Usage, UsageError

log: structlog.stdlib.BoundLogger = structlog.get_logger()

K = TypeVar("K", bound=str)
T = TypeVar("T")

MAX_LIST_BYTES: Final = 256 * MIB
"""The list cannot be paged, and metrics-server copies the pods' labels into it.

150,000 pods with a kilobyte each come to 150 MiB.
"""
_LONGEST_SPAN: Final = 64
_LONGEST_PLAIN: Final = 18
Columns = tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]
_Stamp = Annotated[datetime, msgspec.Meta(tz=True)]


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""


class _Container(msgspec.Struct):
    usage: Quantities


class _NodeMetrics(msgspec.Struct):
    metadata: _Meta
    timestamp: _Stamp
    window: str
    usage: Quantities


class _PodMetrics(msgspec.Struct):
    metadata: _Meta
    timestamp: _Stamp
    window: str
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Named(msgspec.Struct):
    metadata: _Meta


class _ExactMeta(msgspec.Struct, gc=False):
    name: str
    namespace: str


class _ExactUsage(msgspec.Struct, gc=False):
    cpu: str
    memory: str


class _ExactContainer(msgspec.Struct, gc=False):
    usage: _ExactUsage


class _ExactPod(msgspec.Struct, gc=False):
    """PodMetrics as metrics-server writes them; texts that repeat are parsed once."""

    metadata: _ExactMeta
    timestamp: str
    window: str
    containers: Annotated[list[_ExactContainer], msgspec.Meta(min_length=1)]


_LIST: Final = msgspec.json.Decoder(_List)
_RAW_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_EXACT_PODS: Final = msgspec.json.Decoder(list[_ExactPod])
_NODE: Final = JsonDecoder(_NodeMetrics)
_POD: Final = JsonDecoder(_PodMetrics)
_NAMED: Final = JsonDecoder(_Named)

# Go's time.Duration.String: 1m0.5s, 15.2s, 900ms.
_SPAN: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_SPAN_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SPAN_UNITS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip


class MetricsServerSource:
    """Asks the metrics API of the cluster."""

    name: Final[str] = SourceKind.METRICS_SERVER

    def __init__(
        self,
        client: KubeApi,
        *,
        timeout_s: float | None = None,
        checkpoint: Checkpoint = no_checkpoint,
    ) -> None:
        self._client = client
        self._checkpoint = checkpoint
        self._timeout_s = timeout_s
        self._skipped: dict[str, int] = {}

    async def sample(self) -> Sample:
        nodes = await self._measured(NODE_METRICS, _read_nodes)
        pods = await self._measured(POD_METRICS, read_pods)
        return Sample(nodes=nodes, pods=pods, skipped=sum(self._skipped.values()))

    async def _measured(
        self, resource: Resource, read: Callable[[bytes, Checkpoint], tuple[T, list[str]]]
    ) -> T:
        try:
            body = await self._client.get(
                resource.path(), timeout_s=self._timeout_s, max_bytes=MAX_LIST_BYTES
            )
            # Tens of megabytes in a large cluster: too much for the loop to wait for.
            found, errors = await asyncio.to_thread(read, body, self._checkpoint)
        except KubeError as error:
            raise _failed(resource, error) from error
        except UNDECODABLE as error:
            raise _failed(resource, f"the answer makes no sense: {error}") from error
        self._tell_skipped(resource.kind, errors)
        return found

    def _tell_skipped(self, kind: str, errors: list[str]) -> None:
        if errors and len(errors) != self._skipped.get(kind):
            log.warning("measurements skipped", kind=kind, count=len(errors), error=errors[0])
        self._skipped[kind] = len(errors)


def read_node(raw: msgspec.Raw) -> tuple[NodeName, Usage]:
    """Read one NodeMetrics; raise ValueError when it makes no sense."""
    item = _NODE.decode(raw)
    cpu_milli, mem_bytes = _amounts(item.usage)
    return NodeName(item.metadata.name), _usage(item, cpu_milli, mem_bytes)


def read_pod(raw: msgspec.Raw) -> tuple[str, Usage]:
    """Read one PodMetrics, which uses what its containers use together."""
    item = _POD.decode(raw)
    amounts = [_amounts(container.usage) for container in item.containers]
    usage = _usage(item, sum(cpu for cpu, _ in amounts), sum(mem for _, mem in amounts))
    return f"{item.metadata.namespace}/{item.metadata.name}", usage


def read_pods(body: bytes, checkpoint: Checkpoint) -> tuple[UsageColumns, list[str]]:
    """Read a PodMetricsList; also return what was wrong with the entries that were skipped."""
    try:
        return _in_pieces(body, checkpoint)
    except UNDECODABLE:
        found, errors = _each(_LIST.decode(body).items or (), read_pod, checkpoint)
        return UsageColumns.of(found), errors


def _in_pieces(body: bytes, checkpoint: Checkpoint) -> tuple[UsageColumns, list[str]]:
    made, parse, errors = UsageWriter(), _Texts(), list[str]()
    for piece in list_pieces(body):
        checkpoint()
        try:
            made.add(*_exact(_EXACT_PODS.decode(piece), parse))
        except (*UNDECODABLE, ArithmeticError):
            found, wrong = _each(_RAW_ITEMS.decode(piece), read_pod, checkpoint)
            made.add_all(found)
            errors += wrong
    return made.columns(), errors


def _exact(pods: Sequence[_ExactPod], parse: _Texts) -> tuple[Sequence[str], *Columns]:
    """Return names, CPU, memory, ends and windows of a piece, as `read_pod` does for one pod."""
    metas = [pod.metadata for pod in pods]
    used = [container.usage for pod in pods for container in pod.containers]
    sizes = [len(pod.containers) for pod in pods]
    return (
        [f"{meta.namespace}/{meta.name}" for meta in metas],
        _summed(_nano([usage.cpu for usage in used]), sizes),
        _summed(_kibi([usage.memory for usage in used]), sizes),
        [parse.end_s[pod.timestamp] for pod in pods],
        [parse.window_s[pod.window] for pod in pods],
    )


def _nano(texts: list[str]) -> list[float]:
    """Return milli-cores; nearly all texts are in nano-cores."""
    return parsed(texts, "n", lambda number: number / 1e6, _cpu_milli)


def _kibi(texts: list[str]) -> list[float]:
    return parsed(texts, "Ki", lambda number: number * 1024.0, _mem_bytes)


def _summed(amounts: list[float], sizes: Sequence[int]) -> list[float]:
    """Return the sum of each pod; `sizes` says how many containers each has."""
    if len(amounts) == len(sizes):
        return amounts
    rest = iter(amounts)
    return [sum(islice(rest, size)) for size in sizes]


class _Texts:
    """Times and windows of one list: few distinct texts, each parsed once."""

    def __init__(self) -> None:
        self.end_s: Final = _Parsed(_end_s)
        self.window_s: Final = _Parsed(span_s)


class _Parsed(dict[str, float]):
    """Texts and what they mean; a missing one is parsed."""

    def __init__(self, parse: Callable[[str], float]) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, text: str) -> float:
        self[text] = found = self._parse(text)
        return found


def _end_s(text: str) -> float:
    return msgspec.convert(text, _Stamp).timestamp()


def _read_nodes(body: bytes, checkpoint: Checkpoint) -> tuple[dict[NodeName, Usage], list[str]]:
    return _each(_LIST.decode(body).items or (), read_node, checkpoint)


def _each(
    items: Iterable[msgspec.Raw],
    read: Callable[[msgspec.Raw], tuple[K, Usage]],
    checkpoint: Checkpoint,
) -> tuple[dict[K, Usage], list[str]]:
    found: dict[K, Usage] = {}
    errors: list[str] = []
    for raw in items:
        checkpoint()
        try:
            key, usage = read(raw)
            found[key] = usage
        except (*UNDECODABLE, ArithmeticError) as error:
            errors.append(f"{_name(raw)}: {error}")
    return found, errors


def _name(raw: msgspec.Raw) -> str:
    try:
        meta = _NAMED.decode(raw).metadata
    except UNDECODABLE:
        return "without a readable name"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def _usage(item: _NodeMetrics | _PodMetrics, cpu_milli: float, mem_bytes: float) -> Usage:
    return Usage(cpu_milli, mem_bytes, item.timestamp.timestamp(), span_s(item.window))


def _amounts(usage: Quantities) -> tuple[float, float]:
    if "cpu" not in usage or "memory" not in usage:
        raise ValueError("cpu and memory are not both measured")
    return _cpu_milli(str(usage["cpu"])), _mem_bytes(str(usage["memory"]))


# Measurements hardly ever repeat: sent through the cached parser they would drive out the
# requests and limits, which do. Nearly all are digits with one of two units; besides,
# thirty idle pods would each be rounded up to a whole milli-core.
def _cpu_milli(text: str) -> float:
    digits = text.removesuffix("n")
    return int(digits) / 1e6 if _is_plain(digits, text) else float(milli(text))


def _mem_bytes(text: str) -> float:
    digits = text.removesuffix("Ki")
    return int(digits) * 1024.0 if _is_plain(digits, text) else float(whole(text))


def _is_plain(digits: str, text: str) -> bool:
    known = digits != text and len(digits) <= _LONGEST_PLAIN
    return known and digits.isascii() and digits.isdigit()


def span_s(text: str) -> float:
    """Return the seconds of a Go duration; raise ValueError if it is none."""
    if len(text) > _LONGEST_SPAN or not _SPAN.fullmatch(text):
        raise ValueError(f"{text[:_LONGEST_SPAN]!r} is not a window of time")
    return sum(float(count) * _SPAN_UNITS[unit] for count, unit in _SPAN_PART.findall(text))


def _failed(resource: Resource, why: Any) -> UsageError:  # Any: words, or an error that has some
    return UsageError(f"metrics-server: no {resource.kind}: {why}")
