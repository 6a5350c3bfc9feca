"""Settings that both kinds of configuration have.

`LoadSettings` decides what a node's load is. The rebalancer and every extender must agree on
it, otherwise one moves away what the other attracts; so there is one model, and its hash is
published by extenders and compared by the rebalancer.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from common.cluster import quantity
from common.config.durations import Duration
from common.config.values import (
    Count,
    Cpu,
    Factor,
    Flag,
    Jobs,
    Memory,
    Path,
    Percent,
    Rate,
    Settings,
    SomeText,
    Span,
    TokenFile,
    Url,
    Wait,
    broken_rule,
)
from common.usage.source import NODE_JOBS, POD_JOBS, SourceKind


class Queries(Settings):
    """PromQL in place of the built-in queries, which know cAdvisor and node-exporter."""

    node_cpu: SomeText | None = Field(default=None, description="Cores used, per node.")
    node_memory: SomeText | None = Field(default=None, description="Bytes used, per node.")
    node_time: SomeText | None = Field(
        default=None, description="When the node was scraped, in seconds of Unix time."
    )
    pod_cpu: SomeText | None = Field(
        default=None, description="Cores used, per `namespace` and `pod`."
    )
    pod_memory: SomeText | None = Field(
        default=None, description="Bytes used, per `namespace` and `pod`."
    )
    pod_time: SomeText | None = Field(
        default=None, description="When the pod was scraped, in seconds of Unix time."
    )


class Prometheus(Settings):
    """How to ask Prometheus."""

    url: Url = Field(
        description="Where it answers, for example `http://prometheus.monitoring:9090`."
    )
    bearer_token_file: TokenFile | None = Field(
        default=None,
        description="File with the token to send; read again when it changes. The token of the "
        "pod's own service account is refused.",
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates to trust instead of the system's (PEM)."
    )
    insecure_skip_verify: Flag = Field(
        default=False, description="Trust any certificate. For trials only."
    )
    timeout: Wait = Field(default=Duration("10s"), description="How long one query may take.")
    window: Wait = Field(
        default=Duration("2m"),
        description="Span of the rates; at least twice the scrape interval.",
    )
    node_label: SomeText = Field(default="node", description="The label that names the node.")
    pod_jobs: Jobs = Field(
        default=POD_JOBS,
        description="The scrape jobs whose figures of pods are believed, as a regular expression: "
        "those of the kubelets. An exporter of a tenant could say anything about anyone's pods.",
    )
    node_jobs: Jobs = Field(
        default=NODE_JOBS,
        description="The same for figures of nodes: the jobs of node-exporter.",
    )
    queries: Queries = Field(
        default=Queries(),
        description="PromQL in place of the built-in queries, which know the names of cAdvisor "
        "and node-exporter; `$window`, `$node`, `$podJobs` and `$nodeJobs` stand for the keys "
        "above.",
    )


class Estimates(Settings):
    """What a pod is believed to use before it was measured."""

    cpu_of_request: Factor = Field(default=0.85, description="Times the CPU request.")
    memory_of_request: Factor = Field(default=0.70, description="Times the memory request.")
    cpu: Cpu = Field(default="250m", description="CPU of a pod with neither request nor limit.")
    memory: Memory = Field(
        default="200Mi", description="Memory of a pod with neither request nor limit."
    )

    @property
    def cpu_milli(self) -> int:
        return quantity.milli(self.cpu)

    @property
    def mem_bytes(self) -> int:
        return quantity.whole(self.memory)


class LoadSettings(Settings):
    """What a node's load is, and when it is too high."""

    cpu_threshold: Percent = Field(
        default=80.0, description="A node is overloaded above this share of its allocatable CPU."
    )
    memory_threshold: Percent = Field(
        default=80.0, description="A node is overloaded above this share of its allocatable memory."
    )
    usage_source: SourceKind = Field(
        default=SourceKind.AUTO,
        description="Where usage is read. `auto` is metrics-server as soon as the cluster serves "
        "it; until then plans are made on requests, and nothing is moved or scored for load. "
        "`requests` says that load is what pods request, and acts on it.",
    )
    prometheus: Prometheus | None = Field(
        default=None, description="How to ask Prometheus; only for `usageSource: prometheus`."
    )
    metric_expiry: Wait = Field(
        default=Duration("180s"),
        description="A node whose newest sample is older is unknown: neither source nor target.",
    )
    observations: Count = Field(
        default=3, description="New samples in a row that must break a goal before anything moves."
    )
    clear_observations: Count = Field(default=2, description="Good samples in a row that end it.")
    clock_skew: Span = Field(
        default=Duration("30s"),
        description="A sample may end this far in our future: another machine stamped it.",
    )
    smoothing: Wait = Field(
        default=Duration("60s"),
        description="Time in which a pod's smoothed usage takes up most of a change.",
    )
    estimates: Estimates = Field(
        default=Estimates(), description="What a pod is believed to use before it was measured."
    )

    @model_validator(mode="after")
    def _source_and_block_agree(self) -> Self:
        if self.usage_source is SourceKind.PROMETHEUS and self.prometheus is None:
            raise broken_rule("prometheus needs a prometheus block with its url", "usageSource")
        if self.usage_source is SourceKind.AUTO and self.prometheus is not None:
            raise broken_rule(
                "usageSource: auto never asks Prometheus: write usageSource: prometheus",
                "prometheus",
            )
        return self


class ClientConnection(Settings):
    """How hard the API server may be asked."""

    qps: Rate = Field(default=50.0, description="Requests per second in the long run.")
    burst: Count = Field(default=100, description="Requests that may be sent at once.")


class Reading(Settings):
    """How the cluster is listed and watched."""

    page_size: Count = Field(default=500, description="Objects per page of a list.")
    min_watch: Wait = Field(default=Duration("5m"), description="A watch is renewed no sooner.")
    max_watch: Wait = Field(default=Duration("10m"), description="A watch is renewed no later.")
    watch_grace: Wait = Field(
        default=Duration("15s"),
        description="A watch that the server does not end in time is given up so much later.",
    )
    silence: Wait = Field(
        default=Duration("90s"),
        description="A watch that is silent for so long is closed, and the kind is listed anew.",
    )
    stale_after: Wait = Field(
        default=Duration("2m"),
        description="Without a word from the API server for so long the cache counts as stale.",
    )
    connect_timeout: Wait = Field(
        default=Duration("10s"), description="How long making a connection may take."
    )
    backoff_min: Wait = Field(default=Duration("800ms"), description="First pause after a failure.")
    backoff_max: Wait = Field(
        default=Duration("30s"), description="Longest pause between failures."
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
    usage_interval: Wait = Field(default=Duration("15s"), description="How often usage is read.")
    client_connection: ClientConnection = Field(
        default=ClientConnection(), description="How hard the API server may be asked."
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
