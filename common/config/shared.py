# SPDX-License-Identifier: Apache-2.0
"""Settings that both kinds of configuration have.

`LoadSettings` decides what a node's load is. The rebalancer and every extender must agree on
it, otherwise one moves away what the other attracts; so there is one model, and its hash is
published by extenders and compared by the rebalancer.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from common.cluster import quantities as quantity
from common.config.choices import AggregationType, SourceKind
from common.config.durations import Duration
from common.config.pools import NamespaceRule, Pools
from common.config.values import (
    AggregationWindow,
    AnyAmount,
    Count,
    Cpu,
    Factor,
    Flag,
    Jobs,
    Memory,
    Path,
    Percent,
    Rate,
    ResourceName,
    Settings,
    SomeText,
    Span,
    TokenFile,
    Url,
    Wait,
    broken_rule,
    named_once,
)

# The jobs that scrape cAdvisor and node-exporter, as kube-prometheus and the usual charts
# name them.
_POD_JOBS: Final = "kubelet|cadvisor|kubernetes-cadvisor|kubernetes-nodes-cadvisor"
_NODE_JOBS: Final = "node-exporter|prometheus-node-exporter|kubernetes-node-exporter"


class Queries(Settings):
    """PromQL instead of the built-in queries, which use cAdvisor and node-exporter."""

    node_cpu: SomeText | None = Field(default=None, description="Cores used, per node.")
    node_memory: SomeText | None = Field(default=None, description="Bytes used, per node.")
    node_time: SomeText | None = Field(
        default=None, description="When the node was last scraped, as Unix time in seconds."
    )
    node_cpu_pressure: SomeText | None = Field(
        default=None, description="Percent of time that tasks waited for CPU, per node."
    )
    node_memory_pressure: SomeText | None = Field(
        default=None, description="Percent of time that tasks waited for memory, per node."
    )
    pod_cpu: SomeText | None = Field(
        default=None, description="Cores used, per `namespace` and `pod`."
    )
    pod_memory: SomeText | None = Field(
        default=None, description="Bytes used, per `namespace` and `pod`."
    )
    pod_time: SomeText | None = Field(
        default=None, description="When the pod was last scraped, as Unix time in seconds."
    )


MOST_RESOURCES: Final = 8
"""Each takes two queries a round, and a column of the planner's model."""


class FurtherResource(Settings):
    """A resource besides CPU and memory that nodes may use too much of."""

    name: ResourceName = Field(
        description="What every answer about it calls it, for example `network`."
    )
    node_query: SomeText = Field(
        description="How much nodes use of it, in any unit; of several series for a node the "
        "largest counts."
    )
    pod_query: SomeText = Field(
        description="How much pods use of it, per `namespace` and `pod`, in the same unit. A pod "
        "without a series uses none."
    )
    capacity: AnyAmount | None = Field(
        default=None, description="How much each node has of it, in the unit of the queries."
    )
    capacity_query: SomeText | None = Field(
        default=None, description="The same as a query, where nodes differ."
    )
    allocatable: SomeText | None = Field(
        default=None,
        description="The same as a resource that nodes report, for example `nvidia.com/gpu`.",
    )
    threshold: Percent = Field(
        default=80.0, description="A node is overloaded above this percentage of its capacity."
    )

    @model_validator(mode="after")
    def _one_capacity(self) -> Self:
        given = (self.capacity, self.capacity_query, self.allocatable)
        if sum(each is not None for each in given) != 1:
            raise broken_rule(
                "set one of capacity, capacityQuery and allocatable", "capacity", "capacityQuery"
            )
        return self


def _few(values: tuple[FurtherResource, ...]) -> tuple[FurtherResource, ...]:
    if len(values) > MOST_RESOURCES:
        raise ValueError(f"more than {MOST_RESOURCES} resources")
    return values


FurtherResources = Annotated[
    tuple[FurtherResource, ...],
    AfterValidator(_few),
    AfterValidator(named_once),
]


class Prometheus(Settings):
    """How to query Prometheus."""

    url: Url = Field(description="Its address, for example `http://prometheus.monitoring:9090`.")
    bearer_token_file: TokenFile | None = Field(
        default=None,
        description="File with the token to send; reloaded when it changes. The token of the "
        "pod's own service account is rejected.",
    )
    ca_file: Path | None = Field(
        default=None, description="CA certificates to trust instead of the system's (PEM)."
    )
    insecure_skip_verify: Flag = Field(
        default=False, description="Skip certificate verification. Do not use in production."
    )
    timeout: Wait = Field(default=Duration("10s"), description="Timeout of one query.")
    window: Wait = Field(
        default=Duration("2m"),
        description="Time range of the rates; at least twice the scrape interval.",
    )
    node_label: SomeText = Field(default="node", description="The label that names the node.")
    pod_jobs: Jobs = Field(
        default=_POD_JOBS,
        description="The scrape jobs whose pod figures are trusted, as a regular expression: "
        "those of the kubelets. A tenant's exporter could report anything about other pods.",
    )
    node_jobs: Jobs = Field(
        default=_NODE_JOBS,
        description="The same for node figures: the jobs of node-exporter.",
    )
    queries: Queries = Field(
        default=Queries(),
        description="PromQL instead of the built-in queries, which use the names of cAdvisor and "
        "node-exporter; `$window`, `$node`, `$podJobs` and `$nodeJobs` are replaced by the keys "
        "above.",
    )
    resources: FurtherResources = Field(
        default=(),
        description="Further resources with thresholds of their own, such as network, disk or GPU "
        "([load](load.md#further-resources)); their queries may contain the same names.",
    )


class Estimates(Settings):
    """What a pod is expected to use before it is measured."""

    cpu_of_request: Factor = Field(default=0.85, description="Factor for the CPU request.")
    memory_of_request: Factor = Field(default=0.70, description="Factor for the memory request.")
    cpu: Cpu = Field(default="250m", description="CPU of a pod with neither request nor limit.")
    memory: Memory = Field(
        default="200Mi", description="Memory of a pod with neither request nor limit."
    )

    # Cached: an estimate is made for each pod that was not measured.
    @cached_property
    def cpu_milli(self) -> int:
        return quantity.milli(self.cpu)

    @cached_property
    def mem_bytes(self) -> int:
        return quantity.whole(self.memory)


class Aggregation(Settings):
    """Which figure stands for what a node used over a while."""

    type: AggregationType = Field(
        default=AggregationType.LAST,
        description="`last` takes the newest sample; the others the mean, or a percentile, of "
        "what the pods that are on the node used during the window.",
    )
    window: AggregationWindow = Field(
        default=Duration("15m"), description="How far back it reaches; `last` does not use it."
    )

    @property
    def is_last(self) -> bool:
        return self.type is AggregationType.LAST

    def __str__(self) -> str:
        return "now" if self.is_last else f"{self.type.value} of {self.window}"


class Aggregations(Settings):
    """Which figures nodes are judged by."""

    ceilings: Aggregation = Field(
        default=Aggregation(),
        description="By which figure a node counts as above its ceiling, and nodes are compared.",
    )
    targets: Aggregation = Field(
        default=Aggregation(type=AggregationType.P95, window=Duration("30m")),
        description="By which figure a node has room for more pods, for moves and for scores.",
    )


class Pressure(Settings):
    """How long tasks may wait for a resource (PSI), whatever a node uses of it."""

    cpu: Percent | None = Field(
        default=None,
        description="A node where tasks wait for CPU for more than this percentage of time is "
        "relieved and takes no pods. Not judged by default.",
    )
    memory: Percent | None = Field(default=None, description="The same for memory.")

    @property
    def is_judged(self) -> bool:
        return self.cpu is not None or self.memory is not None

    def exceeded(self, cpu: float | None, memory: float | None) -> tuple[bool, bool]:
        """Tell for each resource whether tasks wait longer than allowed; not if it is unknown."""
        pairs = ((cpu, self.cpu), (memory, self.memory))
        too_long = [a is not None and most is not None and a > most for a, most in pairs]
        return too_long[0], too_long[1]


class LoadFigures(Settings):
    """How samples become the figures that nodes are judged by."""

    aggregation: Aggregations = Field(
        default=Aggregations(), description="Which figures nodes are judged by."
    )


class LoadSettings(Settings):
    """What a node's load is, and when it is too high."""

    cpu_threshold: Percent = Field(
        default=80.0,
        description="A node is overloaded above this percentage of its allocatable CPU.",
    )
    memory_threshold: Percent = Field(
        default=80.0,
        description="A node is overloaded above this percentage of its allocatable memory.",
    )
    pools: Pools = Field(
        default=(),
        description="What differs for some nodes ([rules](rules.md)); the first pool that matches "
        "a node holds. The extender uses the thresholds.",
    )
    usage_source: SourceKind = Field(
        default=SourceKind.AUTO,
        description="Where usage is read. `auto` uses metrics-server as soon as the cluster "
        "serves it; until then plans are based on requests, and nothing is moved or scored for "
        "load. `requests` takes what pods request as their load, and acts on it.",
    )
    prometheus: Prometheus | None = Field(
        default=None, description="How to query Prometheus; only for `usageSource: prometheus`."
    )
    metric_expiry: Wait = Field(
        default=Duration("180s"),
        description="The load of a node whose newest sample is older is unknown: no pod is moved "
        "to or from it.",
    )
    observations: Count = Field(
        default=3, description="Consecutive samples that must miss a goal before pods are moved."
    )
    clear_observations: Count = Field(
        default=2, description="Good samples in a row that end the goal."
    )
    clock_skew: Span = Field(
        default=Duration("30s"),
        description="A sample may end this far in the future: other machines' clocks differ.",
    )
    smoothing: Wait = Field(
        default=Duration("60s"),
        description="Time in which a pod's smoothed usage follows most of a change.",
    )
    load: LoadFigures = Field(
        default=LoadFigures(),
        description="How samples become the figures that nodes are judged by.",
    )
    pressure: Pressure = Field(
        default=Pressure(),
        description="How long tasks may wait for a resource (PSI), whatever a node uses of it; "
        "only for `usageSource: prometheus`.",
    )
    estimates: Estimates = Field(
        default=Estimates(), description="What a pod is expected to use before it is measured."
    )

    @property
    def further_resources(self) -> tuple[FurtherResource, ...]:
        """What is judged besides CPU and memory, in the order of the file."""
        if self.prometheus is None or self.usage_source is not SourceKind.PROMETHEUS:
            return ()
        return self.prometheus.resources

    @model_validator(mode="after")
    def _pools_name_known_resources(self) -> Self:
        listed = self.prometheus.resources if self.prometheus is not None else ()
        known = {resource.name for resource in listed}
        for pool in self.pools:
            for name in pool.resource_thresholds:
                if name not in known:
                    raise broken_rule(
                        f"{pool.name} sets a threshold for {name}, which is not in "
                        "prometheus.resources",
                        "pools",
                    )
        return self

    @model_validator(mode="after")
    def _source_and_block_agree(self) -> Self:
        if self.usage_source is SourceKind.PROMETHEUS and self.prometheus is None:
            raise broken_rule("prometheus needs a prometheus block with a url", "usageSource")
        if self.usage_source is not SourceKind.PROMETHEUS and self.pressure.is_judged:
            raise broken_rule(
                "pressure is read from Prometheus: set usageSource: prometheus", "pressure"
            )
        if self.usage_source is SourceKind.AUTO and self.prometheus is not None:
            raise broken_rule(
                "usageSource: auto never queries Prometheus: set usageSource: prometheus",
                "prometheus",
            )
        return self


class ClientConnection(Settings):
    """Rate limits of requests to the API server."""

    qps: Rate = Field(default=50.0, description="Sustained requests per second.")
    burst: Count = Field(default=100, description="Requests that may be sent at once.")


class Reading(Settings):
    """How the cluster is listed and watched."""

    page_size: Count = Field(default=500, description="Objects per page of a list.")
    # The server ends a watch after a time between these, so that watches spread out again
    # over the API servers, and ours do not all end together.
    min_watch: Wait = Field(
        default=Duration("5m"), description="Shortest time before a watch is renewed."
    )
    max_watch: Wait = Field(
        default=Duration("10m"), description="Longest time before a watch is renewed."
    )
    watch_grace: Wait = Field(
        default=Duration("15s"),
        description="A watch that the server does not end in time is closed this much later.",
    )
    # Bookmarks come every minute (apiserver, pkg/storage/cacher/cacher.go), but for a kind
    # of which nothing happens only if etcd notifies progress; then a list replaces them.
    silence: Wait = Field(
        default=Duration("90s"),
        description="A watch that is silent for this long is closed, and the kind is listed again.",
    )
    stale_after: Wait = Field(
        default=Duration("2m"),
        description="Without any news from the API server for this long the cache is stale.",
    )
    connect_timeout: Wait = Field(
        default=Duration("10s"), description="Timeout for opening a connection."
    )
    backoff_min: Wait = Field(
        default=Duration("800ms"), description="First backoff after a failure."
    )
    backoff_max: Wait = Field(
        default=Duration("30s"), description="Longest pause between attempts."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_watch > self.max_watch:
            raise broken_rule(
                f"{self.min_watch} is longer than maxWatch ({self.max_watch})",
                "minWatch",
                "maxWatch",
            )
        if self.backoff_min > self.backoff_max:
            raise broken_rule(
                f"{self.backoff_min} is longer than backoffMax ({self.backoff_max})",
                "backoffMin",
                "backoffMax",
            )
        return self


class Configuration(LoadSettings):
    """What both kinds of configuration have; load settings first."""

    api_version: Literal["evenkeel.io/v1alpha1"] = Field(
        default="evenkeel.io/v1alpha1", description="Required in a file."
    )
    kind: str = ""
    namespaces: tuple[NamespaceRule, ...] = Field(
        default=(),
        description="What differs for the pods of some namespaces ([rules](rules.md)); the first "
        "rule that matches a namespace holds. The extender has no use for it, and takes it so that "
        "both configurations can have the same rules.",
    )
    usage_interval: Wait = Field(default=Duration("15s"), description="How often usage is read.")
    client_connection: ClientConnection = Field(
        default=ClientConnection(), description="Rate limits of requests to the API server."
    )
    reading: Reading = Field(
        default=Reading(), description="How the cluster is listed and watched."
    )

    @model_validator(mode="after")
    def _samples_outlive_the_next_reading(self) -> Self:
        if self.metric_expiry <= self.usage_interval:
            raise broken_rule(
                f"{self.metric_expiry} is not longer than usageInterval ({self.usage_interval}): "
                "every sample would be too old",
                "metricExpiry",
                "usageInterval",
            )
        return self
