# SPDX-License-Identifier: Apache-2.0
"""Rules for a part of the cluster: pools of nodes, and namespaces.

A rule holds only what it changes; everything else comes from the configuration around it. Which
rule holds for a node or a pod, and what comes of it, is in `rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from common.config.choices import Mode, Strategy
from common.config.schedules import Schedule
from common.config.values import (
    AnySelector,
    Count,
    Percent,
    PoolName,
    ResourceName,
    Says,
    Settings,
    named_once,
    no_repeats,
)


def _for_load_only(modes: Mapping[Strategy, Mode]) -> Mapping[Strategy, Mode]:
    if Strategy.NODE_MAINTENANCE in modes:
        raise ValueError(
            "NodeMaintenance cannot be set here: no namespace keeps a node from being drained"
        )
    return modes


Strategies = Annotated[tuple[Strategy, ...], AfterValidator(no_repeats)]


class PoolLimits(Settings):
    """How many moves a pool allows."""

    max_reschedule_pods: Count | None = Field(
        default=None,
        description="Most pods moved for load per cycle away from nodes of the pool; "
        "`maxReschedulePods` of the configuration limits all pools together.",
    )
    max_in_flight_per_node: Count | None = Field(
        default=None, description="Most moves at once away from one node of the pool."
    )
    max_inbound_per_node: Count | None = Field(
        default=None, description="Most moves at once towards one node of the pool."
    )
    maintenance_parallelism: Count | None = Field(
        default=None,
        description="Most moves at once away from a node of the pool under maintenance.",
    )


class Pool(Settings):
    """What holds for some nodes; the first pool that matches a node holds for it."""

    name: PoolName = Field(description="The name of the pool, which every answer about it shows.")
    node_selector: AnySelector = Field(
        description="The nodes of the pool: a label selector, or labels as in a pod's "
        "`nodeSelector`. An empty one matches all nodes."
    )
    cpu_threshold: Percent | None = Field(
        default=None, description="Instead of `cpuThreshold` of the configuration."
    )
    memory_threshold: Percent | None = Field(
        default=None, description="Instead of `memoryThreshold` of the configuration."
    )
    resource_thresholds: Annotated[
        Mapping[ResourceName, Percent], Says("block of resource: percent")
    ] = Field(
        default={},
        description="Instead of `threshold` of resources in `prometheus.resources`, by name.",
    )
    imbalance_threshold: Percent | None = Field(
        default=None, description="Instead of `imbalanceThreshold` of the configuration."
    )
    enabled_strategies: Strategies | None = Field(
        default=None,
        description="The strategies for nodes of the pool, instead of those of the configuration.",
    )
    modes: Mapping[Strategy, Mode] = Field(
        default={}, description="Mode per strategy for moves away from nodes of the pool."
    )
    limits: PoolLimits = Field(
        default=PoolLimits(), description="How many moves the pool allows; none keeps the general."
    )
    schedule: Schedule = Field(
        default=(),
        description="When load moves away from nodes of the pool may begin; empty means always.",
    )


class NamespaceLimits(Settings):
    """How many moves a namespace allows."""

    max_per_namespace: Count | None = Field(
        default=None, description="Instead of `maxPerNamespace`, for each namespace that matches."
    )


class NamespaceRule(Settings):
    """What holds for the pods of some namespaces; the first that matches holds."""

    selector: AnySelector = Field(
        description="The namespaces, by their labels; `kubernetes.io/metadata.name` is the name. "
        "An empty one matches all."
    )
    modes: Annotated[Mapping[Strategy, Mode], AfterValidator(_for_load_only)] = Field(
        default={},
        description="Mode per strategy for pods of these namespaces. Where the pool of their node "
        "has one too, both must be `act`.",
    )
    limits: NamespaceLimits = Field(
        default=NamespaceLimits(), description="How many moves a namespace allows."
    )
    schedule: Schedule = Field(
        default=(),
        description="When load moves of these pods may begin; empty means always.",
    )


Pools = Annotated[tuple[Pool, ...], AfterValidator(named_once)]
