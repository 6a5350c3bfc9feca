# SPDX-License-Identifier: Apache-2.0
"""The names and defaults that users rely on."""

from __future__ import annotations

from typing import Any

import pytest

from common.config import (
    KINDS,
    Configuration,
    ExtenderConfiguration,
    LoadSettings,
    RebalancerConfiguration,
    effective,
)

# The two tables of parameters in the requirements, as a file would state them.
LOAD: dict[str, Any] = {
    "cpuThreshold": 80.0,
    "memoryThreshold": 80.0,
    "pools": [],
    "usageSource": "auto",
    "prometheus": None,
    "metricExpiry": "180s",
    "observations": 3,
    "clearObservations": 2,
}
REBALANCER: dict[str, Any] = LOAD | {
    "reschedulingInterval": "30s",
    "enabledStrategies": ["LoadBalancing", "ResourceOptimization"],
    "imbalanceThreshold": 20.0,
    "maxReschedulePods": 10,
    "maxPerNamespace": None,
    "excludedNamespaces": ["kube-system", "kube-public"],
    "excludedPodSelector": "",
    "podSelector": "",
    "namespaceSelector": "",
    "priorityThreshold": None,
    "mode": "observe",
    "modes": {},
    "schedule": [],
    "schedules": {},
    "revalidateAfter": "15s",
    "revalidateWithin": "90s",
    "minGain": 1.0,
    "schedulerNames": ["default-scheduler"],
    "guide": "extender",
    "requireExtender": True,
    "allowSampling": False,
    "poolLabel": "",
    "minNodeAge": "5m",
    "fillLowNodes": "auto",
    "minPodAge": "2m",
    "minReplicas": 1,
    "singleReplica": "refuse",
    "surge": "SingleReplica",
    "podsWithoutPdb": "allow",
    "priorityPolicy": "LowFirst",
    "localStorage": "refuse",
    "protectedStorageClasses": [],
    "barePods": "skip",
    "jobs": "skip",
    "replacingOwners": [],
    "groups": "refuse",
    "evictionGracePeriod": None,
    "temporaryPdb": {"minAvailable": 1, "maxUnavailable": None, "expiry": "5m"},
    "maxInFlightPerNode": 2,
    "maxInboundPerNode": 5,
    "maintenanceParallelism": 5,
    "workloadCooldown": "5m",
    "nodeCooldown": "30m",
    "lineageCooldown": "1h",
    "migrationDeadline": "5m",
    "maxAttempts": 3,
    "keepFinished": "1h",
    "breaker": {"window": 20, "minimum": 5, "badShare": 0.2, "halfOpenAfter": "10m"},
    "maintenance": {"cordon": True, "deadline": None, "schedule": []},
    "consolidation": {
        "target": 65.0,
        "minNodeAge": "10m",
        "cost": {"label": "", "annotation": "", "instanceTypes": {}},
    },
    "hygiene": {"podLifeTime": [], "tooManyRestarts": [], "failedPods": [], "maxRemovals": 10},
    "paused": False,
}
# Waits and limits of reading, which the tables do not name.
BESIDE: dict[str, Any] = {
    "apiVersion": "evenkeel.io/v1alpha1",
    "namespaces": [],
    "clockSkew": "30s",
    "smoothing": "60s",
    "pressure": {"cpu": None, "memory": None},
    "load": {
        "aggregation": {
            "ceilings": {"type": "last", "window": "15m"},
            "targets": {"type": "p95", "window": "30m"},
        },
    },
    "estimates": {
        "cpuOfRequest": 0.85,
        "memoryOfRequest": 0.7,
        "cpu": "250m",
        "memory": "200Mi",
    },
    "usageInterval": "15s",
    "clientConnection": {"qps": 50.0, "burst": 100},
    "reading": {
        "pageSize": 500,
        "minWatch": "5m",
        "maxWatch": "10m",
        "watchGrace": "15s",
        "silence": "90s",
        "staleAfter": "2m",
        "connectTimeout": "10s",
        "backoffMin": "800ms",
        "backoffMax": "30s",
    },
}
LEADER: dict[str, Any] = {
    "enabled": True,
    "namespace": "",
    "name": "evenkeel-rebalancer",
    "leaseDuration": "15s",
    "renewDeadline": "10s",
    "retryPeriod": "2s",
}


def test_the_rebalancer_has_exactly_these_keys_and_defaults() -> None:
    console = {"enabled": True, "port": 8891}
    expected = {**REBALANCER, **BESIDE, "leaderElection": LEADER, "console": console}
    expected["kind"] = "RebalancerConfiguration"
    assert effective(RebalancerConfiguration()) == expected


def test_the_extender_has_exactly_these_keys_and_defaults() -> None:
    own = {"overloaded": "score", "shortlist": "auto", "newPodFloor": 2.5, "leaseNamespace": ""}
    own["kind"] = "ExtenderConfiguration"
    assert effective(ExtenderConfiguration()) == {**LOAD, **BESIDE, **own}


def test_both_kinds_share_one_model_of_load() -> None:
    assert all(issubclass(kind, LoadSettings) for kind in KINDS.values())


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: str(kind.__name__))
def test_the_effective_configuration_is_itself_a_configuration(kind: type[Configuration]) -> None:
    default = kind()
    assert kind.model_validate(effective(default)) == default


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: str(kind.__name__))
def test_a_configuration_cannot_be_changed(kind: type[Configuration]) -> None:
    with pytest.raises(ValueError, match="frozen"):
        kind().cpu_threshold = 1.0
