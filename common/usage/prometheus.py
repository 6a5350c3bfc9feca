# SPDX-License-Identifier: Apache-2.0
"""Usage from Prometheus: instant queries for nodes and pods.

All queries of a round are evaluated at the same moment of Prometheus' own clock, which is
asked first. A figure is an average over `window`; it ends when the series behind it was
last scraped, which is asked too (`timestamp`), because Prometheus goes on answering with
the last value for five minutes after a target has gone.

The default queries know the names of cAdvisor and node-exporter, and believe only the jobs
that scrape these: any tenant may run an exporter that speaks of other tenants' pods. They
survive HA pairs: the same container or core seen twice counts once. Nodes are found
by the node label, else by `instance` without its port, each compared with the names and
addresses of the cluster's nodes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeVar

import httpx
import msgspec
import structlog

from common import __version__
from common.account_token import is_inside, opens_the_api
from common.checkpoint import Checkpoint, no_checkpoint
from common.clock import Clock, within
from common.cluster.records import NodeName, NodeRecord
from common.cluster.resources import MAX_ALLOCATABLE, amount_of
from common.config import FurtherResource, Pressure, Prometheus, Queries, SourceKind
from common.http_body import MIB, BodyError, read_body
from common.null_json import UNDECODABLE, JsonDecoder
from common.usage.node_names import NodeNames
from common.usage.source import FurtherSample, NodePressure, Sample, Usage, UsageError

log: structlog.stdlib.BoundLogger = structlog.get_logger()

K = TypeVar("K", bound=str)
Labels = Mapping[str, str]

MAX_ANSWER_BYTES: Final = 64 * MIB
"""Of one query; a series takes 150 bytes, and a cluster has one for each pod."""
_CONTAINER: Final = '{job=~"$podJobs",container!="",container!="POD",pod!=""}'
_ROOT: Final = '{job=~"$podJobs",id="/"}'
_MACHINE: Final = '{job=~"$nodeJobs"}'
_BUSY: Final = '{job=~"$nodeJobs",mode!~"idle|iowait|steal"}'

# A restarted container has two ids within the window, and both of its rates count; of its
# memory only one container can be alive. Old cAdvisors give one series per core. A kubelet
# serves the same containers on /metrics/cadvisor and on /metrics/resource, under one job.
POD_CPU: Final = (
    "sum by (namespace, pod) (max by (namespace, pod, container) "
    "(sum by (namespace, pod, container, metrics_path) "
    "(max by (namespace, pod, container, id, cpu, metrics_path) "
    f"(rate(container_cpu_usage_seconds_total{_CONTAINER}[$window])))))"
)
POD_MEMORY: Final = (
    "sum by (namespace, pod) (max by (namespace, pod, container) "
    f"(container_memory_working_set_bytes{_CONTAINER}))"
)
POD_TIME: Final = (
    f"max by (namespace, pod) (timestamp(container_cpu_usage_seconds_total{_CONTAINER}))"
)
NODE_CPU: Final = (
    "sum by ($node, instance) (max by ($node, instance, cpu, mode) "
    f"(rate(node_cpu_seconds_total{_BUSY}[$window])))"
)
NODE_MEMORY: Final = (
    f"max by ($node, instance) (node_memory_MemTotal_bytes{_MACHINE}"
    f" - node_memory_MemAvailable_bytes{_MACHINE})"
)
NODE_TIME: Final = f"max by ($node, instance) (timestamp(node_cpu_seconds_total{_BUSY}))"


def _pressure(series: str) -> str:
    """Return the query for a pressure, which node-exporter and kubelets give in seconds.

    A kubelet has that of the node as its root cgroup (`KubeletPSI`, since 1.34 by default:
    pkg/features/kube_features.go). It reads it on cgroup v2, from the same counters of the kernel
    as node-exporter (pkg/kubelet/cadvisor/cadvisor_linux.go, IsPsiEnabled).
    """
    machine = f"rate(node_pressure_{series}_seconds_total{_MACHINE}[$window])"
    root = f"rate(container_pressure_{series}_seconds_total{_ROOT}[$window])"
    return f"100 * (max by ($node, instance) ({machine}) or max by ($node, instance) ({root}))"


# Tasks that wait for CPU, and of memory those in which all of them do ("full"): reclaim makes
# some wait on any busy node.
CPU_PRESSURE: Final = _pressure("cpu_waiting")
MEMORY_PRESSURE: Final = _pressure("memory_stalled")


class _Queries(NamedTuple):
    """What is asked about one kind of thing.

    `times` says when the series were last scraped. Without it, figures count as fresh as the
    evaluation of their query.
    """

    cpu: str
    memory: str
    times: str | None


def node_queries(given: Queries) -> _Queries:
    """Return the queries for nodes; a CPU query of one's own needs its own time query."""
    times = given.node_time or (None if given.node_cpu else NODE_TIME)
    return _Queries(given.node_cpu or NODE_CPU, given.node_memory or NODE_MEMORY, times)


def pod_queries(given: Queries) -> _Queries:
    """Return the queries for pods; a CPU query of one's own needs its own time query."""
    times = given.pod_time or (None if given.pod_cpu else POD_TIME)
    return _Queries(given.pod_cpu or POD_CPU, given.pod_memory or POD_MEMORY, times)


class Series(msgspec.Struct, frozen=True):
    """One element of an instant vector: labels, and (moment of evaluation, value)."""

    metric: dict[str, str]
    value: tuple[float, str]


class _Reply(NamedTuple):
    status: int
    body: bytes


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - the name on the wire
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


_ANSWER: Final = JsonDecoder(_Answer)
_VECTOR: Final = msgspec.json.Decoder(list[msgspec.Raw])
_SERIES: Final = JsonDecoder(Series)
_SCALAR: Final = msgspec.json.Decoder(tuple[float, str])


class _NoneFound(UsageError):
    """A query was answered, and not one node or pod of the cluster was in the answer."""

    def __init__(self, words: str) -> None:
        super().__init__(f"prometheus: {words}")
        self.words = words


class PrometheusSource:
    """Asks one Prometheus, or anything that speaks its API."""

    name: Final[str] = SourceKind.PROMETHEUS

    def __init__(
        self,
        settings: Prometheus,
        *,
        nodes: Callable[[], Iterable[NodeRecord]],
        clock: Clock,
        checkpoint: Checkpoint = no_checkpoint,
        pressure: Pressure | None = None,
    ) -> None:
        """`pressure` says which pressures are judged; others are not asked for."""
        self._settings = settings
        self._pressure = pressure or Pressure()
        self._nodes = nodes
        self._clock = clock
        self._checkpoint = checkpoint
        self._skipped: dict[str, int] = {}
        self._failed: dict[str, str] = {}
        """What was wrong with further resources in the newest round."""
        self._http = httpx.AsyncClient(
            verify=_trust(settings),
            # Unpacking is ours: httpx' has no limit.
            headers={"User-Agent": f"evenkeel/{__version__}", "Accept-Encoding": "gzip"},
            timeout=None,  # each query as a whole has a limit instead
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def sample(self) -> Sample:
        at_s = await self._server_time()
        records = tuple(self._nodes())
        names = NodeNames(records, self._settings.node_label)
        asked = self._settings.queries
        nodes = await self._measured("node", node_queries(asked), names.find, at_s)
        pressures = await self._pressures(names, at_s)
        pods: Mapping[str, Usage] = {}
        no_pods = ""
        try:
            pods = await self._measured("pod", pod_queries(asked), pod_key, at_s)
        except _NoneFound as error:  # what is said of nodes holds all the same
            no_pods = error.words
        wanted = self._settings.resources
        return Sample(
            nodes=nodes,
            pods=pods,
            pressures=pressures,
            further=tuple([await self._further(each, names, records, at_s) for each in wanted]),
            no_pods=no_pods,
            skipped=sum(self._skipped.values()),
        )

    async def _further(
        self,
        wanted: FurtherResource,
        names: NodeNames,
        records: Iterable[NodeRecord],
        at_s: float,
    ) -> FurtherSample:
        """Return what is used of a resource; a query that fails hides this resource only."""
        try:
            offered = offers(wanted, records)
            if wanted.capacity_query is not None:
                offered = await self._values(wanted.capacity_query, names.find, at_s)
            nodes = await self._values(wanted.node_query, names.find, at_s)
            pods = await self._values(wanted.pod_query, pod_key, at_s)
        except UsageError as error:
            self._tell_failed(wanted.name, str(error))
            return FurtherSample()
        self._failed.pop(wanted.name, None)
        return FurtherSample(
            nodes=_possible(nodes), offered=_possible(offered), pods=_possible(pods)
        )

    def _tell_failed(self, resource: str, error: str) -> None:
        """Log what is wrong with the queries of a resource, until it is something else."""
        if self._failed.get(resource) != error:
            log.warning("resource not read", resource=resource, error=error)
        self._failed[resource] = error

    async def _pressures(self, names: NodeNames, at_s: float) -> Mapping[NodeName, NodePressure]:
        """Return the pressures that are judged."""
        asked, wanted = self._settings.queries, self._pressure
        cpu: Mapping[NodeName, float] = {}
        memory: Mapping[NodeName, float] = {}
        if wanted.cpu is not None:
            query = asked.node_cpu_pressure or CPU_PRESSURE
            cpu = _possible(await self._values(query, names.find, at_s))
        if wanted.memory is not None:
            query = asked.node_memory_pressure or MEMORY_PRESSURE
            memory = _possible(await self._values(query, names.find, at_s))
        return {name: NodePressure(cpu.get(name), memory.get(name)) for name in cpu.keys() | memory}

    async def _measured(
        self,
        what: str,
        queries: _Queries,
        key_of: Callable[[Labels], K | None],
        at_s: float,
    ) -> Mapping[K, Usage]:
        cpu = await self._values(queries.cpu, key_of, at_s)
        if not cpu:
            asked = self._fill_in(queries.cpu)
            raise _NoneFound(
                f"no {what} of the cluster is in the answer to {asked} "
                f"(prometheus.{what}Jobs names the jobs that are believed)"
            )
        mem = await self._values(queries.memory, key_of, at_s)
        times = queries.times
        end = None if times is None else await self._values(times, key_of, at_s)
        window_s = self._settings.window.seconds
        return {
            key: Usage(1000.0 * cpu[key], mem[key], at_s if end is None else end[key], window_s)
            for key in cpu
            if key in mem and (end is None or key in end)
        }

    async def _values(
        self, query: str, key_of: Callable[[Labels], K | None], at_s: float
    ) -> dict[K, float]:
        query = self._fill_in(query)
        data = await self._ask(query, at_s)
        try:
            # Tens of megabytes in a large cluster: too much for the loop to wait for.
            read = partial(_by_key, data, key_of, self._checkpoint)
            found, errors = await asyncio.to_thread(read)
        except UNDECODABLE as error:
            raise _nonsense(query, error) from error

        self._tell_skipped(query, errors)
        return found

    def _tell_skipped(self, query: str, errors: list[str]) -> None:
        if errors and len(errors) != self._skipped.get(query):
            log.warning("series skipped", query=query, count=len(errors), error=errors[0])
        self._skipped[query] = len(errors)

    async def _server_time(self) -> float:
        data = await self._ask("time()", None)
        try:
            if data.resultType == "scalar":
                return _SCALAR.decode(data.result)[0]
            return _SERIES.decode(_VECTOR.decode(data.result)[0]).value[0]
        except (*UNDECODABLE, IndexError) as error:
            raise _nonsense("time()", error) from error

    async def _ask(self, query: str, at_s: float | None) -> _Data:
        answer = await self._post(query, at_s)
        try:
            found = _ANSWER.decode(answer.body)
        except UNDECODABLE as error:
            if answer.status != httpx.codes.OK:
                raise UsageError(f"prometheus: HTTP {answer.status} for {query}") from error
            raise _nonsense(query, error) from error
        if found.status != "success" or found.data is None:
            raise UsageError(f"prometheus: {found.error or found.status} in {query}")
        return found.data

    async def _post(self, query: str, at_s: float | None) -> _Reply:
        settings = self._settings
        form = {"query": query} if at_s is None else {"query": query, "time": f"{at_s:.3f}"}
        url = settings.url.rstrip("/") + "/api/v1/query"
        headers = _credentials(settings)
        try:
            sending = self._answered(url, form, headers)
            return await within(self._clock, settings.timeout, sending)
        except TimeoutError as error:
            words = f"no answer within {settings.timeout.seconds:g} s"
            raise UsageError(f"prometheus: {words} from {settings.url}") from error
        except (httpx.HTTPError, httpx.InvalidURL, BodyError) as error:
            words = str(error) or type(error).__name__
            raise UsageError(f"prometheus: {words} from {settings.url}") from error

    async def _answered(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> _Reply:
        async with self._http.stream("POST", url, data=form, headers=headers) as answer:
            encoding = answer.headers.get("Content-Encoding", "")
            body = await read_body(answer.aiter_raw(), encoding, MAX_ANSWER_BYTES)
        return _Reply(answer.status_code, body)

    def _fill_in(self, query: str) -> str:
        settings = self._settings
        # `$node` last: the others begin with it.
        for name, value in (
            ("$window", f"{round(1000 * settings.window)}ms"),
            ("$podJobs", _quoted(settings.pod_jobs)),
            ("$nodeJobs", _quoted(settings.node_jobs)),
            ("$node", settings.node_label),
        ):
            query = query.replace(name, value)
        return query


def offers(wanted: FurtherResource, records: Iterable[NodeRecord]) -> dict[NodeName, float]:
    """Return how much of a resource nodes have by the configuration, or by what they report."""
    if wanted.capacity is not None:
        return dict.fromkeys((node.name for node in records), wanted.capacity)
    name = wanted.allocatable
    if name is None:
        return {}
    return {node.name: float(amount_of(node.allocatable, name)) for node in records}


def _possible(values: Mapping[K, float]) -> dict[K, float]:
    """Return the values that can be amounts."""
    return {key: value for key, value in values.items() if 0.0 <= value <= MAX_ALLOCATABLE}


def pod_key(labels: Labels) -> str | None:
    """Return `namespace/name` of the pod that a series is about."""
    namespace, pod = labels.get("namespace"), labels.get("pod")
    return f"{namespace}/{pod}" if namespace and pod else None


def _by_key(
    data: _Data, key_of: Callable[[Labels], K | None], checkpoint: Checkpoint
) -> tuple[dict[K, float], list[str]]:
    """Return values by what they are about, of several for one thing the largest.

    Series that make no sense are left out, and what is wrong with them is said.
    """
    if data.resultType != "vector":
        raise ValueError(f"it is a {data.resultType}, not a vector")
    found: dict[K, float] = {}
    errors: list[str] = []
    for raw in _VECTOR.decode(data.result):
        checkpoint()
        try:
            series = _SERIES.decode(raw)
            key, value = key_of(series.metric), float(series.value[1])
        except UNDECODABLE as error:
            errors.append(str(error))
            continue
        if key is not None and isfinite(value):
            found[key] = max(value, found.get(key, value))
    return found, errors


def _trust(settings: Prometheus) -> ssl.SSLContext | bool:
    if settings.insecure_skip_verify:
        return False
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"prometheus: {settings.ca_file}: {error}") from error


def _credentials(settings: Prometheus) -> dict[str, str]:
    """Return the header with the token, read each time because tokens are rotated."""
    file = settings.bearer_token_file
    if file is None:
        return {}
    # Links and files may have changed since the configuration was read.
    if is_inside(file):
        raise _not_for_others(file)
    try:
        token = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"prometheus: {file}: {error}") from error
    if opens_the_api(token):
        raise _not_for_others(file)
    return {"Authorization": f"Bearer {token}"}


def _not_for_others(file: str) -> UsageError:
    words = "holds a token of our service account, which opens the Kubernetes API: it is not sent"
    return UsageError(f"prometheus: {file} {words}")


def _quoted(text: str) -> str:
    """Return a text as it stands inside the quotes of PromQL."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _nonsense(query: str, why: object) -> UsageError:
    return UsageError(f"prometheus: the answer to {query} makes no sense: {why}")
