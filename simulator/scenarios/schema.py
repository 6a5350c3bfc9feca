"""What a scenario file may say.

The same rules as for the programs' configuration: camelCase, strict types, unknown keys
refused. Amounts are written as in manifests.
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
        raise ValueError("must not be empty: leave it out, or write constant")
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
    """What each pod really uses."""

    cpu_curve: CurveText | None = Field(default=None, description="How CPU changes over time.")
    memory_curve: CurveText | None = Field(
        default=None, description="How memory changes over time."
    )


class Taint(Settings):
    """A taint of all nodes of a pool."""

    key: LabelKey = Field(description="Its key.")
    value: Text = Field(default="", description="Its value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="What it does to pods that do not tolerate it."
    )


class Pool(Settings):
    """Nodes that are alike."""

    name: ObjectName = Field(default="node", description="Nodes are called name-1, name-2, …")
    count: Count = Field(description="How many there are.")
    cpu: Cpu = Field(default="8", description="CPU of each.")
    memory: Memory = Field(default="32Gi", description="Memory of each.")
    pods: Count = Field(default=110, description="How many pods each can run.")
    zones: tuple[Text, ...] = Field(default=(), description="Zones, given out in turns.")
    labels: Labels = Field(default_factory=dict, description="More labels.")
    taints: tuple[Taint, ...] = Field(default=(), description="Taints.")
    overhead: Amounts = Field(
        default_factory=Amounts, description="What the node uses beside its pods."
    )
    joins_after: Span = Field(
        default=Duration("0s"), description="When the nodes join; with 0s they are there already."
    )


class Budget(Settings):
    """A PodDisruptionBudget over a workload."""

    min_available: Pods | None = Field(default=None, description="Number or share of pods.")
    max_unavailable: Pods | None = Field(default=None, description="Number or share of pods.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Budget:
        if (self.min_available is None) == (self.max_unavailable is None):
            why = "write minAvailable or maxUnavailable, one of them"
            raise broken_rule(why, "minAvailable", "maxUnavailable")
        return self


class Workload(Settings):
    """Some workloads that are alike."""

    name: ObjectName = Field(description="With a count above 1 they are called name-1, name-2, …")
    kind: Literal["Deployment", "StatefulSet", "ReplicaSet", "Pod"] = Field(
        default="Deployment", description="What manages the pods; Pod is nobody."
    )
    count: Count = Field(default=1, description="How many of them there are.")
    replicas: Count = Field(default=1, description="Pods of each.")
    namespace: Namespace = Field(default="default", description="Made if it is missing.")
    requests: Amounts = Field(default_factory=Amounts, description="What each pod asks for.")
    usage: Usage = Field(default_factory=Usage, description="What each pod uses.")
    labels: Labels = Field(default_factory=dict, description="More labels of its pods.")
    annotations: dict[Text, Text] = Field(
        default_factory=dict, description="Annotations of its pods."
    )
    grace: Span = Field(default=Duration("1s"), description="How long a pod may take to end.")
    node_selector: Labels = Field(default_factory=dict, description="Labels its nodes must have.")
    spread: tuple[LabelKey, ...] = Field(
        default=(), description="Topology keys over which replicas must be spread evenly."
    )
    pdb: Budget | None = Field(default=None, description="Its disruption budget.")
    parallel: Flag = Field(default=False, description="A StatefulSet's pods do not wait in turn.")
    nodes: tuple[ObjectName, ...] = Field(
        default=(), description="Nodes where its pods are at the beginning, in turns."
    )


class Level(Settings):
    """Nodes that are used about as much at the beginning."""

    nodes: Count = Field(description="How many.")
    least: Percent = Field(alias="from", description="Percent of CPU that is in use, from…")
    most: Percent = Field(alias="to", description="…to.")

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
    """A cluster at its beginning."""

    api_version: Literal["evenkeel.io/v1alpha1"] = Field(
        default="evenkeel.io/v1alpha1", description="Required in a file."
    )
    kind: Literal["Scenario"] = Field(default="Scenario", description="Required in a file.")
    description: Text = Field(default="", description="What it shows, for people.")
    pools: Annotated[tuple[Pool, ...], AfterValidator(_some)] = Field(description="The nodes.")
    workloads: tuple[Workload, ...] = Field(default=(), description="What runs on them.")
    load: tuple[Level, ...] = Field(
        default=(),
        description="How much nodes are used at the beginning; pods are placed to match. "
        "Without it the scheduler places them.",
    )
