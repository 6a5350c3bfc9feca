# SPDX-License-Identifier: Apache-2.0
"""What the programs can be told, and how they say that they do not understand it.

Two kinds of file, `RebalancerConfiguration` and `ExtenderConfiguration`, share the settings
that decide what load is. Models are frozen; names in files are camelCase; unknown keys,
wrong units and keys that do not go together are refused with the line they stand in.
The reference page `docs/configuration.md` is made from the models: `python -m common.config`.
"""

from __future__ import annotations

from common.config.choices import (
    AggregationType,
    BarePods,
    FillLowNodes,
    Groups,
    Guide,
    Jobs,
    LocalStorage,
    Mode,
    Overloaded,
    PodsWithoutPdb,
    PriorityPolicy,
    SingleReplica,
    SourceKind,
    Strategy,
    Surge,
)
from common.config.durations import Duration
from common.config.extender import ExtenderConfiguration
from common.config.hygiene import (
    FailedPodsRule,
    Hygiene,
    PodLifeTimeRule,
    PodSelection,
    TooManyRestartsRule,
)
from common.config.leader_election import LeaderElection
from common.config.loading import (
    KINDS,
    ConfigError,
    differences,
    effective,
    load_config,
    load_settings_hash,
    parse_config,
)
from common.config.pools import NamespaceLimits, NamespaceRule, Pool, PoolLimits
from common.config.rebalancer import (
    Breaker,
    Consolidation,
    Maintenance,
    NodeCost,
    PriorityThreshold,
    RebalancerConfiguration,
    TemporaryPdb,
)
from common.config.rules import (
    FOR_LOAD,
    GENERAL,
    REPAIRS,
    Closed,
    Decided,
    NamespaceRules,
    NodeRules,
    PoolIndex,
    Rules,
    Thresholds,
)
from common.config.schedules import Schedule, Window, next_opening
from common.config.shared import (
    Aggregation,
    Aggregations,
    ClientConnection,
    Configuration,
    Estimates,
    FurtherResource,
    LoadFigures,
    LoadSettings,
    Pressure,
    Prometheus,
    Queries,
    Reading,
)

__all__ = [
    "FOR_LOAD",
    "GENERAL",
    "KINDS",
    "REPAIRS",
    "Aggregation",
    "AggregationType",
    "Aggregations",
    "BarePods",
    "Breaker",
    "ClientConnection",
    "Closed",
    "ConfigError",
    "Configuration",
    "Consolidation",
    "Decided",
    "Duration",
    "Estimates",
    "ExtenderConfiguration",
    "FailedPodsRule",
    "FillLowNodes",
    "FurtherResource",
    "Groups",
    "Guide",
    "Hygiene",
    "Jobs",
    "LeaderElection",
    "LoadFigures",
    "LoadSettings",
    "LocalStorage",
    "Maintenance",
    "Mode",
    "NamespaceLimits",
    "NamespaceRule",
    "NamespaceRules",
    "NodeCost",
    "NodeRules",
    "Overloaded",
    "PodLifeTimeRule",
    "PodSelection",
    "PodsWithoutPdb",
    "Pool",
    "PoolIndex",
    "PoolLimits",
    "Pressure",
    "PriorityPolicy",
    "PriorityThreshold",
    "Prometheus",
    "Queries",
    "Reading",
    "RebalancerConfiguration",
    "Rules",
    "Schedule",
    "SingleReplica",
    "SourceKind",
    "Strategy",
    "Surge",
    "TemporaryPdb",
    "Thresholds",
    "TooManyRestartsRule",
    "Window",
    "differences",
    "effective",
    "load_config",
    "load_settings_hash",
    "next_opening",
    "parse_config",
]
