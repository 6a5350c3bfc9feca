# SPDX-License-Identifier: Apache-2.0
"""Keys that take one word out of a few."""

from __future__ import annotations

from enum import StrEnum


class Overloaded(StrEnum):
    """What happens to a node above its threshold."""

    SCORE = "score"
    FILTER = "filter"


class Guide(StrEnum):
    """What tells the replacement of a moved pod where to go."""

    EXTENDER = "extender"
    ADMISSION = "admission"


class Strategy(StrEnum):
    """What the rebalancer can strive for."""

    LOAD_BALANCING = "LoadBalancing"
    RESOURCE_OPTIMIZATION = "ResourceOptimization"
    NODE_MAINTENANCE = "NodeMaintenance"
    CONSOLIDATION = "Consolidation"
    VIOLATIONS = "Violations"
    DUPLICATES = "Duplicates"
    PREFERRED_NODES = "PreferredNodes"
    HYGIENE = "Hygiene"
    TOPOLOGY_SPREAD = "TopologySpread"


class Mode(StrEnum):
    """Whether plans are carried out."""

    ACT = "act"
    OBSERVE = "observe"


class FillLowNodes(StrEnum):
    """Whether a node that is much emptier than the others is a reason to move pods."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class PriorityPolicy(StrEnum):
    """Which pods leave a node that has to lose some."""

    LOW_FIRST = "LowFirst"
    FEWEST_EVICTIONS = "FewestEvictions"


class SingleReplica(StrEnum):
    """Whether the only replica of a workload may be moved."""

    REFUSE = "refuse"
    ALLOW = "allow"


class Surge(StrEnum):
    """Which workloads get one more replica while one of their pods moves."""

    NEVER = "Never"
    SINGLE_REPLICA = "SingleReplica"
    ALWAYS = "Always"


class PodsWithoutPdb(StrEnum):
    """Whether pods that no PodDisruptionBudget covers may be moved."""

    ALLOW = "allow"
    REFUSE = "refuse"


class LocalStorage(StrEnum):
    """Whether pods that keep data on their node may be moved."""

    REFUSE = "refuse"
    ALLOW = "allow"


class BarePods(StrEnum):
    """What happens to pods that no controller would replace."""

    SKIP = "skip"
    REPLACE = "replace"


class Groups(StrEnum):
    """Whether groups that cannot be moved pod by pod leave drained nodes as a whole."""

    REFUSE = "refuse"
    RESTART = "restart"


class Jobs(StrEnum):
    """Whether pods of Jobs may be moved."""

    SKIP = "skip"
    MOVE = "move"


class SourceKind(StrEnum):
    """Where usage is read."""

    AUTO = "auto"
    METRICS_SERVER = "metrics-server"
    PROMETHEUS = "prometheus"
    REQUESTS = "requests"


class AggregationType(StrEnum):
    """Which figure stands for what a node used over a while."""

    LAST = "last"
    MEAN = "mean"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"

    @property
    def percentile(self) -> float | None:
        """Return the percentile that it names; None if it names none."""
        return float(self.value[1:]) if self.value[0] == "p" else None
