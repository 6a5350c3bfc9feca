# SPDX-License-Identifier: Apache-2.0
"""The schema of scenario files.

The same rules as for the configuration of the programs: camelCase, strict types, no unknown
keys. Quantities are written as in manifests.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from common.config.durations import Duration
from common.config.values import (
    Count,
    Cpu,
    Flag,
    LabelKey,
    Memory,
    Namespace,
    ObjectName,
    Percent,
    Pods,
    Says,
    Settings,
    Span,
    Text,
    broken_rule,
)
from simulator.nodes import curves


def _curve(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty: remove it, or use constant")
    curves.parse(text)
    return text


CurveText = Annotated[
    Text, AfterValidator(_curve), Says("curve, such as wave period=10m depth=50%")
]
Labels = dict[LabelKey, Text]


class Amounts(Settings):
    """CPU and memory."""

    cpu: Cpu | None = Field(default=None, description="CPU, as in manifests.")
    memory: Memory | None = Field(default=None, description="Memory, as in manifests.")


class Usage(Amounts):
    """The actual usage of each pod."""

    cpu_curve: CurveText | None = Field(default=None, description="How CPU changes over time.")
    memory_curve: CurveText | None = Field(
        default=None, description="How memory changes over time."
    )


class Taint(Settings):
    """A taint of all nodes of a pool."""

    key: LabelKey = Field(description="Key of the taint.")
    value: Text = Field(default="", description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="Effect on pods that do not tolerate it."
    )


class Pool(Settings):
    """A pool of equal nodes."""

    name: ObjectName = Field(default="node", description="The nodes are named name-1, name-2, …")
    count: Count = Field(description="Number of nodes.")
    cpu: Cpu = Field(default="8", description="CPU of each node.")
    memory: Memory = Field(default="32Gi", description="Memory of each node.")
    pods: Count = Field(default=110, description="Maximum number of pods of each node.")
    zones: tuple[Text, ...] = Field(default=(), description="Zones, assigned in turn.")
    labels: Labels = Field(default_factory=dict, description="Additional labels.")
    taints: tuple[Taint, ...] = Field(default=(), description="Taints.")
    overhead: Amounts = Field(
        default_factory=Amounts, description="Usage of the node without its pods."
    )
    joins_after: Span = Field(
        default=Duration("0s"), description="When the nodes join; 0s means from the start."
    )


class Budget(Settings):
    """A PodDisruptionBudget over a workload."""

    min_available: Pods | None = Field(default=None, description="Number or percentage of pods.")
    max_unavailable: Pods | None = Field(default=None, description="Number or percentage of pods.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Budget:
        if (self.min_available is None) == (self.max_unavailable is None):
            why = "set exactly one of minAvailable and maxUnavailable"
            raise broken_rule(why, "minAvailable", "maxUnavailable")
        return self


class Workload(Settings):
    """A group of equal workloads."""

    name: ObjectName = Field(description="With a count above 1 the names are name-1, name-2, …")
    kind: Literal["Deployment", "StatefulSet", "ReplicaSet", "Pod"] = Field(
        default="Deployment", description="The controller of the pods; Pod means none."
    )
    count: Count = Field(default=1, description="Number of workloads.")
    replicas: Count = Field(default=1, description="Replicas of each workload.")
    namespace: Namespace = Field(
        default="default", description="Namespace; created if it does not exist."
    )
    requests: Amounts = Field(default_factory=Amounts, description="Requests of each pod.")
    usage: Usage = Field(default_factory=Usage, description="Usage of each pod.")
    labels: Labels = Field(default_factory=dict, description="Additional labels of the pods.")
    annotations: dict[Text, Text] = Field(
        default_factory=dict, description="Annotations of the pods."
    )
    grace: Span = Field(default=Duration("1s"), description="Termination grace period of the pods.")
    node_selector: Labels = Field(default_factory=dict, description="Node selector of the pods.")
    spread: tuple[LabelKey, ...] = Field(
        default=(), description="Topology keys over which replicas must be spread evenly."
    )
    pdb: Budget | None = Field(default=None, description="PodDisruptionBudget of the workload.")
    parallel: Flag = Field(default=False, description="Parallel pod management of a StatefulSet.")
    nodes: tuple[ObjectName, ...] = Field(
        default=(), description="Initial nodes of the pods, assigned in turn."
    )


class Level(Settings):
    """Nodes with about the same initial utilization."""

    nodes: Count = Field(description="Number of nodes.")
    least: Percent = Field(alias="from", description="Lowest CPU utilization in percent.")
    most: Percent = Field(alias="to", description="Highest CPU utilization in percent.")

    @model_validator(mode="after")
    def _in_order(self) -> Level:
        if self.least > self.most:
            raise broken_rule("must not be below from", "to")
        return self


def _some(pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
    if not pools:
        raise ValueError("needs at least one entry")
    return pools


class Scenario(Settings):
    """The initial state of a cluster."""

    api_version: Literal["evenkeel.io/v1alpha1"] = Field(
        default="evenkeel.io/v1alpha1", description="Required in a file."
    )
    kind: Literal["Scenario"] = Field(default="Scenario", description="Required in a file.")
    description: Text = Field(default="", description="What the scenario shows.")
    pools: Annotated[tuple[Pool, ...], AfterValidator(_some)] = Field(description="The nodes.")
    workloads: tuple[Workload, ...] = Field(default=(), description="The workloads.")
    load: tuple[Level, ...] = Field(
        default=(),
        description="Initial utilization of the nodes; pods are placed to match. "
        "Without it the scheduler places them.",
    )
