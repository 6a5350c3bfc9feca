"""Usage from metrics-server: one LIST of nodes, one of pods.

A `timestamp` is the end of the window that a figure is the average of (k8s.io/metrics,
pkg/apis/metrics/v1beta1/types.go), cut to whole seconds on the wire; so a window never
seems to begin later than it did. An entry that makes no sense is skipped, and its node or
pod counts as not measured: one broken entry must not blind us to all others. A list that
cannot be had or read, or is larger than `MAX_LIST_BYTES`, fails the whole round.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
import structlog

from common.breathing import Breathe, go_on
from common.cluster.objects import Quantities
from common.cluster.quantity import milli, whole
from common.cluster.records import NodeName
from common.http_body import MIB
from common.kube.client import KubeClient
from common.kube.errors import KubeError
from common.kube.resources import NODE_METRICS, POD_METRICS, Resource
from common.null_json import UNDECODABLE, JsonDecoder
from common.usage.source import Sample, SourceKind, Usage, UsageError

log: structlog.stdlib.BoundLogger = structlog.get_logger()

K = TypeVar("K", bound=str)

MAX_LIST_BYTES: Final = 256 * MIB
"""The list cannot be paged, and metrics-server copies the pods' labels into it.

150,000 pods with a kilobyte each come to 150 MiB.
"""
_LONGEST_SPAN: Final = 64
_LONGEST_PLAIN: Final = 18
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


_LIST: Final = msgspec.json.Decoder(_List)
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
        self, client: KubeClient, *, timeout_s: float | None = None, breathe: Breathe = go_on
    ) -> None:
        self._client = client
        self._breathe = breathe
        self._timeout_s = timeout_s
        self._skipped: dict[str, int] = {}

    async def sample(self) -> Sample:
        nodes = await self._measured(NODE_METRICS, read_node)
        pods = await self._measured(POD_METRICS, read_pod)
        return Sample(nodes=nodes, pods=pods, skipped=sum(self._skipped.values()))

    async def _measured(
        self, resource: Resource, read: Callable[[msgspec.Raw], tuple[K, Usage]]
    ) -> Mapping[K, Usage]:
        try:
            body = await self._client.get(
                resource.path(), timeout_s=self._timeout_s, max_bytes=MAX_LIST_BYTES
            )
            # Tens of megabytes in a large cluster: too much for the loop to wait for.
            found, errors = await asyncio.to_thread(_read_all, body, read, self._breathe)
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


def _read_all(
    body: bytes, read: Callable[[msgspec.Raw], tuple[K, Usage]], breathe: Breathe
) -> tuple[dict[K, Usage], list[str]]:
    found: dict[K, Usage] = {}
    errors: list[str] = []
    for raw in _LIST.decode(body).items or ():
        breathe()
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
