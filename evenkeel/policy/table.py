# SPDX-License-Identifier: Apache-2.0
"""Every plugin and argument of the descheduler, and what it becomes here.

Names and types are those of pkg/api/v1alpha2/types.go and pkg/framework/plugins/*/types.go of
descheduler. `here` and `difference` are the columns of the page about the descheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta

from evenkeel.policy import hygiene, protections
from evenkeel.policy.draft import HYGIENE, Draft, Scope, Verdict
from evenkeel.policy.outcomes import (
    Apply,
    LabelSelector,
    MetricsUtilization,
    Namespaces,
    Outcome,
    Provider,
    built_in,
    drops,
    holds,
    low_thresholds,
    namespaces,
    pod_labels,
    providers,
    target_thresholds,
    usage,
    writes,
    writes_if,
)

Count = Annotated[int, Meta(ge=0)]
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: its type, what becomes of it, and what the page says about it."""

    name: str
    type: Any
    apply: Apply
    here: str
    difference: str = ""


Strategies = Callable[[Mapping[str, Any]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin: which strategies it becomes, and its arguments."""

    name: str
    strategies: Strategies
    arguments: tuple[Argument, ...]
    here: str
    difference: str = ""
    begin: Callable[[Draft, Scope], None] | None = None


def _always(*names: str) -> Strategies:
    return lambda _arguments: names


def _leveling(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    deviates = arguments.get("useDeviationThresholds") is True
    return ("LoadBalancing",) if deviates else ("ResourceOptimization",)


def _taints(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    soft = arguments.get("includePreferNoSchedule") is True
    return ("Violations", "PreferredNodes") if soft else ("Violations",)


def _affinity(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    wanted = arguments.get("nodeAffinityType") or [_REQUIRED]
    found = (("Violations", _REQUIRED), ("PreferredNodes", _PREFERRED))
    return tuple(strategy for strategy, kind in found if kind in wanted)


_NAMESPACES: Final = Argument(
    "namespaces",
    Namespaces,
    namespaces,
    "`namespaces[].modes`",
    "the strategy only observes in the namespaces that are left out",
)
_LABELS: Final = Argument(
    "labelSelector",
    LabelSelector,
    pod_labels,
    "`modes`: observe",
    "`podSelector` selects pods for all strategies, not for one; the strategy only observes until "
    "you decide",
)
_EVICTABLE: Final = Argument(
    "evictableNamespaces",
    Namespaces,
    namespaces,
    "`namespaces[].modes`",
    "the strategy only observes in the namespaces that are left out",
)
_ON: Final = Outcome(Verdict.BUILT_IN, "", "that is the default")

POLICY: Final[tuple[Argument, ...]] = (
    Argument(
        "maxNoOfPodsToEvictTotal",
        Count,
        writes("maxReschedulePods", "per cycle; does not limit emptying a node"),
        "`maxReschedulePods`",
        "per cycle; does not limit emptying a node",
    ),
    Argument(
        "maxNoOfPodsToEvictPerNamespace",
        Count,
        writes("maxPerNamespace"),
        "`maxPerNamespace`",
        "counts moves that are still in progress as well",
    ),
    Argument(
        "maxNoOfPodsToEvictPerNode",
        Count,
        writes("maxInFlightPerNode", "at once, not per run"),
        "`maxInFlightPerNode`",
        "at once, not per run",
    ),
    Argument(
        "nodeSelector",
        str,
        drops(
            "limit strategies to nodes with pools (a pool with enabledStrategies: [] for others)"
        ),
        "`pools`",
        "not translated, because a pool also says what holds for its nodes; a pool with "
        "`enabledStrategies: []` leaves nodes alone",
    ),
    Argument(
        "gracePeriodSeconds",
        Count,
        lambda draft, scope, value: (
            writes("evictionGracePeriod", "only lengthens the pod's own", hygiene.seconds)(
                draft, scope, value
            )
            if value
            else Outcome(Verdict.DROPPED, "", "a grace period is never shortened")
        ),
        "`evictionGracePeriod`",
        "only lengthens the pod's own; 0 is not translated",
    ),
    Argument(
        "evictionFailureEventNotification",
        bool,
        built_in("Events tell about every move"),
        "built in",
        "Events tell about every move",
    ),
    Argument(
        "metricsProviders",
        list[Provider],
        providers,
        "`prometheus.url`, `usageSource`",
        "the token needs a file (`prometheus.bearerTokenFile`)",
    ),
    Argument(
        "metricsCollector",
        dict[str, bool],
        built_in("usageSource follows what the plugins use"),
        "`usageSource`",
        "follows what the plugins use",
    ),
)
"""What a policy says about all of its profiles."""

_EVICTOR: Final[tuple[Argument, ...]] = (
    Argument(
        "nodeSelector",
        str,
        drops("targets are all nodes that a pod fits; limit them with taints or affinity"),
        _NOTHING,
        "targets are all nodes that the pod fits",
    ),
    Argument("labelSelector", LabelSelector, writes("podSelector", convert=str), "`podSelector`"),
    Argument(
        "namespaceLabelSelector",
        LabelSelector,
        writes("namespaceSelector", convert=str),
        "`namespaceSelector`",
    ),
    Argument(
        "priorityThreshold",
        protections.Thresholded,
        protections.priority,
        "`priorityThreshold`",
        "a class that does not exist refuses every pod",
    ),
    Argument(
        "nodeFit",
        bool,
        built_in(
            "fit is always judged, for the whole plan",
            False,
            "fit is always judged: a pod moves only if it fits its target",
        ),
        "built in",
        "always on, for the whole plan, with all filters of kube-scheduler",
    ),
    Argument(
        "minReplicas",
        Count,
        lambda draft, scope, value: (
            writes("minReplicas")(draft, scope, value) if value > 1 else _ON
        ),
        "`minReplicas`",
        "counts desired replicas, not pods that exist",
    ),
    Argument("minPodAge", str, writes("minPodAge"), "`minPodAge`", "does not apply to maintenance"),
    Argument(
        "noEvictionPolicy",
        str,
        built_in(
            "the annotation always protects a pod",
            "Preferred",
            "the annotation always protects a pod",
        ),
        "built in",
        "always `Mandatory`",
    ),
    Argument(
        "podProtections.extraEnabled",
        list[str],
        protections.extra,
        "`protectedStorageClasses`, `podsWithoutPdb`",
        "`PodsWithResourceClaims` is built in",
    ),
    Argument(
        "podProtections.defaultDisabled",
        list[str],
        protections.disabled,
        "`localStorage: allow`",
        "only `PodsWithLocalStorage` can be turned off",
    ),
    Argument(
        "podProtections.config",
        protections.ProtectionConfig,
        built_in("with podProtections.extraEnabled"),
        "`protectedStorageClasses`",
        "with `PodsWithPVC` in `podProtections.extraEnabled`",
    ),
    Argument(
        "evictLocalStoragePods",
        bool,
        writes_if(True, "localStorage", "allow", _ON),
        "`localStorage: allow`",
    ),
    Argument(
        "evictDaemonSetPods",
        bool,
        built_in("that is the default", True, protections.ALWAYS["DaemonSetPods"]),
        _NOTHING,
        "they would come back to the same node",
    ),
    Argument(
        "evictSystemCriticalPods",
        bool,
        built_in("that is the default", True, protections.ALWAYS["SystemCriticalPods"]),
        _NOTHING,
        "pods of system priority are never moved",
    ),
    Argument(
        "ignorePvcPods",
        bool,
        writes_if(True, "protectedStorageClasses", ["*"], _ON),
        '`protectedStorageClasses: ["*"]`',
    ),
    Argument(
        "ignorePodsWithoutPDB",
        bool,
        writes_if(True, "podsWithoutPdb", "refuse", _ON),
        "`podsWithoutPdb: refuse`",
    ),
    Argument(
        "evictFailedBarePods",
        bool,
        built_in("that is the default", True, protections.FAILED_BARE),
        _NOTHING,
        "nothing would replace them; `barePods: replace` makes a copy of running ones",
    ),
)

_LIFETIME, _RESTARTS, _FAILED = "podLifeTime", "tooManyRestarts", "failedPods"


def _hygiene(
    check: str,
    argument: str,
    kind: Any,
    key: str,
    convert: Callable[[Any], Any] = lambda value: value,
    difference: str = "",
) -> Argument:
    here = f"`hygiene.{check}[].{key}`"
    return Argument(argument, kind, hygiene.rule(check, key, convert), here, difference)


def _selected(check: str) -> tuple[Argument, Argument]:
    """Return the arguments that say which pods a check is about."""
    return (
        _hygiene(check, "namespaces", Namespaces, "namespaces", hygiene.some_namespaces),
        _hygiene(check, "labelSelector", LabelSelector, "podSelector", hygiene.labels),
    )


PLUGINS: Final[tuple[Plugin, ...]] = (
    Plugin(
        "LowNodeUtilization",
        _leveling,
        (
            Argument(
                "targetThresholds",
                dict[str, float],
                target_thresholds,
                "`cpuThreshold`, `memoryThreshold`",
                "above is too much, and no move brings a node above it; CPU and memory only",
            ),
            Argument(
                "thresholds",
                dict[str, float],
                low_thresholds,
                _NOTHING,
                "a node does not have to be low to receive pods",
            ),
            Argument(
                "useDeviationThresholds",
                bool,
                lambda _draft, _scope, value: (
                    Outcome(Verdict.TRANSLATED, "LoadBalancing") if value else _ON
                ),
                "`LoadBalancing` with `imbalanceThreshold`",
                "the width of the band, `thresholds` plus `targetThresholds`; compares the highest "
                "and the lowest node of a pool instead of each node with the average",
            ),
            Argument(
                "numberOfNodes",
                int,
                drops("moves need no minimum number of low nodes"),
                _NOTHING,
                "moves need no minimum number of low nodes",
            ),
            Argument(
                "metricsUtilization",
                MetricsUtilization,
                usage,
                "`usageSource`",
                "without it `requests`; Prometheus needs `prometheus.queries` for nodes and pods "
                "if the built-in ones do not fit, because moves are decided by what each pod uses",
            ),
            _EVICTABLE,
            Argument(
                "evictionLimits",
                dict[str, Count],
                lambda draft, scope, value: (
                    writes("maxInFlightPerNode", "at once, not per run")(
                        draft, scope, value["node"]
                    )
                    if value.get("node")
                    else _ON
                ),
                "`maxInFlightPerNode`",
                "at once, not per run",
            ),
        ),
        "`ResourceOptimization`",
        "only if another node has room; with `useDeviationThresholds` `LoadBalancing`",
    ),
    Plugin(
        "HighNodeUtilization",
        _always("Consolidation"),
        (
            Argument(
                "thresholds",
                dict[str, float],
                drops(
                    "the set of nodes that can be emptied is searched; consolidation.target "
                    "limits the others"
                ),
                _NOTHING,
                "the largest or cheapest set of nodes that can be emptied is searched; "
                "`consolidation.target` limits the load of the others",
            ),
            Argument(
                "numberOfNodes",
                int,
                drops("moves need no minimum number of low nodes"),
                _NOTHING,
                "moves need no minimum number of low nodes",
            ),
            Argument(
                "evictionModes",
                list[str],
                drops("a node is emptied as a whole or not at all"),
                _NOTHING,
                "a node is emptied as a whole or not at all",
            ),
            _EVICTABLE,
        ),
        "`Consolidation`",
        "a node is emptied only if all of its pods can go, and stays empty until it is removed",
    ),
    Plugin(
        "RemoveDuplicates",
        _always("Duplicates"),
        (
            _NAMESPACES,
            Argument(
                "excludeOwnerKinds",
                list[str],
                holds("owner kinds cannot be excluded"),
                "`modes`: observe",
                "owner kinds cannot be excluded; the strategy only observes until you decide",
            ),
        ),
        "`Duplicates`",
        "only if another node is free and has room; a workload is its controller, whatever its "
        "images",
    ),
    Plugin(
        "RemovePodsViolatingNodeAffinity",
        _affinity,
        (
            _NAMESPACES,
            _LABELS,
            Argument(
                "nodeAffinityType",
                list[str],
                lambda _draft, scope, _value: Outcome(
                    Verdict.TRANSLATED, ", ".join(scope.strategies)
                ),
                "`Violations`, `PreferredNodes`",
                "required affinity is a violation, preferred affinity a preference",
            ),
        ),
        "`Violations`, `PreferredNodes`",
        "only if another node fits",
    ),
    Plugin(
        "RemovePodsViolatingNodeTaints",
        _taints,
        (
            _NAMESPACES,
            _LABELS,
            Argument(
                "includePreferNoSchedule",
                bool,
                lambda _draft, _scope, value: (
                    Outcome(Verdict.TRANSLATED, "PreferredNodes") if value else _ON
                ),
                "`PreferredNodes`",
                "only if another node suits the pod better; considers preferred node affinity too",
            ),
            Argument(
                "excludedTaints",
                list[str],
                holds("taints cannot be excluded"),
                "`modes`: observe",
                "taints cannot be excluded; the strategy only observes until you decide",
            ),
            Argument(
                "includedTaints",
                list[str],
                holds("taints cannot be selected"),
                "`modes`: observe",
                "taints cannot be selected; the strategy only observes until you decide",
            ),
        ),
        "`Violations`",
        "only if another node fits; for nodes that are to be emptied use `NodeMaintenance`",
    ),
    Plugin(
        "RemovePodsViolatingInterPodAntiAffinity",
        _always("Violations"),
        (_NAMESPACES, _LABELS),
        "`Violations`",
        "only if another node fits",
    ),
    Plugin(
        "RemovePodsViolatingTopologySpreadConstraint",
        _always("TopologySpread"),
        (
            _NAMESPACES,
            _LABELS,
            Argument(
                "constraints",
                list[str],
                lambda _draft, _scope, value: (
                    _ON
                    if "ScheduleAnyway" in value
                    else Outcome(
                        Verdict.DIFFERS, "", "soft constraints are brought within maxSkew as well"
                    )
                ),
                "built in",
                "soft constraints are always brought within `maxSkew` as well",
            ),
            Argument(
                "topologyBalanceNodeFit",
                bool,
                built_in("fit is always judged, for the whole plan", False, "fit is always judged"),
                "built in",
                "always on",
            ),
        ),
        "`TopologySpread`",
        "only if another node fits, with the fewest moves",
    ),
    Plugin(
        "PodLifeTime",
        _always(HYGIENE),
        (
            *_selected(_LIFETIME),
            _hygiene(_LIFETIME, "maxPodLifeTimeSeconds", Count, "maxAge", hygiene.seconds),
            _hygiene(_LIFETIME, "states", list[str], "states"),
            _hygiene(
                _LIFETIME,
                "conditions",
                list[hygiene.Condition],
                "conditions",
                hygiene.conditions,
                "conditions that are True for no reason are known of `Ready` and `PodScheduled`",
            ),
            _hygiene(_LIFETIME, "exitCodes", list[int], "exitCodes"),
            _hygiene(_LIFETIME, "ownerKinds", hygiene.OwnerKinds, "ownerKinds", hygiene.kinds),
            _hygiene(_LIFETIME, "includingInitContainers", bool, "includingInitContainers"),
            _hygiene(
                _LIFETIME, "includingEphemeralContainers", bool, "includingEphemeralContainers"
            ),
        ),
        "`Hygiene` (`hygiene.podLifeTime`)",
        "a pod that is Ready goes to another node that fits; others are evicted or removed",
        begin=hygiene.begins(_LIFETIME),
    ),
    Plugin(
        "RemovePodsHavingTooManyRestarts",
        _always(HYGIENE),
        (
            *_selected(_RESTARTS),
            _hygiene(_RESTARTS, "podRestartThreshold", Count, "restarts"),
            _hygiene(_RESTARTS, "includingInitContainers", bool, "includingInitContainers"),
            _hygiene(_RESTARTS, "states", list[str], "states"),
        ),
        "`Hygiene` (`hygiene.tooManyRestarts`)",
        "a pod that is Ready goes to another node that fits; others are evicted",
        begin=hygiene.begins(_RESTARTS),
    ),
    Plugin(
        "RemoveFailedPods",
        _always(HYGIENE),
        (
            *_selected(_FAILED),
            _hygiene(_FAILED, "excludeOwnerKinds", list[str], "ownerKinds", hygiene.excluded_kinds),
            _hygiene(_FAILED, "minPodLifetimeSeconds", Count, "minAge", hygiene.seconds),
            _hygiene(_FAILED, "reasons", list[str], "reasons"),
            _hygiene(_FAILED, "exitCodes", list[int], "exitCodes"),
            _hygiene(_FAILED, "includingInitContainers", bool, "includingInitContainers"),
        ),
        "`Hygiene` (`hygiene.failedPods`)",
        "removed without a target, at most `hygiene.maxRemovals` per cycle; pods of Jobs only if "
        "`ownerKinds.include` names `Job`",
        # SetDefaults_RemoveFailedPodsArgs in pkg/framework/plugins/removefailedpods/defaults.go
        begin=hygiene.begins(_FAILED, minAge=hygiene.seconds(3600)),
    ),
    Plugin("DefaultEvictor", _always(), _EVICTOR, "[gates](evictability.md)", "see below"),
)
"""Every plugin that descheduler registers (pkg/descheduler/setupplugins.go)."""
