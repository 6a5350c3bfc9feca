# SPDX-License-Identifier: Apache-2.0
"""What a policy of the descheduler becomes, and what is said about it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
import yaml

from common.config import RebalancerConfiguration, parse_config
from evenkeel.errors import UsageError
from evenkeel.policy import PLUGINS, POLICY, Verdict, convert
from tests.support.docs import policy_page

Json = dict[str, Any]
LOW: Json = {"targetThresholds": {"cpu": 70, "memory": 60}, "thresholds": {"cpu": 20, "memory": 20}}


def policy(*profiles: Any, **others: Any) -> str:
    body = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    return yaml.safe_dump({**body, **others, "profiles": list(profiles)})


def profile(**plugins: Any) -> Json:
    enabled = [name for name in plugins if name != "DefaultEvictor"]
    return {
        "name": "p",
        "pluginConfig": [{"name": name, "args": args} for name, args in plugins.items()],
        "plugins": {"deschedule": {"enabled": enabled}},
    }


def converted(*profiles: Json, **others: Any) -> Json:
    return convert(policy(*profiles, **others), "policy.yaml").configuration


def evictor(**arguments: Any) -> Json:
    return converted(profile(LowNodeUtilization=LOW, DefaultEvictor=arguments))


def verdicts(*profiles: Json, **others: Any) -> dict[str, Verdict]:
    found = convert(policy(*profiles, **others), "policy.yaml").notes
    return {note.place: note.verdict for note in found}


def test_ceilings_of_low_node_utilization() -> None:
    found = converted(profile(LowNodeUtilization=LOW))
    assert found["enabledStrategies"] == ["ResourceOptimization"]
    assert (found["cpuThreshold"], found["memoryThreshold"]) == (70, 60)
    assert found["usageSource"] == "requests"
    assert found["mode"] == "observe"


def test_a_resource_without_a_threshold_has_no_ceiling() -> None:
    found = converted(profile(LowNodeUtilization={"targetThresholds": {"memory": 70}}))
    assert (found["cpuThreshold"], found["memoryThreshold"]) == (100, 70)


def test_deviations_become_the_width_of_the_narrowest_band() -> None:
    args = {
        "useDeviationThresholds": True,
        "thresholds": {"cpu": 10, "memory": 5},
        "targetThresholds": {"cpu": 10, "memory": 7, "pods": 1},
    }
    found = converted(profile(LowNodeUtilization=args))
    assert found["enabledStrategies"] == ["LoadBalancing"]
    assert found["imbalanceThreshold"] == 12


@pytest.mark.parametrize(
    ("argument", "value", "key", "written"),
    [
        ("labelSelector", {"matchLabels": {"a": "b"}}, "podSelector", "a=b"),
        (
            "namespaceLabelSelector",
            {
                "matchExpressions": [
                    {"key": "a", "operator": "NotIn", "values": ["x", "y"]},
                    {"key": "b", "operator": "Exists"},
                    {"key": "c", "operator": "DoesNotExist"},
                ]
            },
            "namespaceSelector",
            "a notin (x, y),b,!c",
        ),
        ("priorityThreshold", {"value": 7}, "priorityThreshold", {"value": 7}),
        ("priorityThreshold", {"name": "high"}, "priorityThreshold", {"name": "high"}),
        ("minReplicas", 3, "minReplicas", 3),
        ("minReplicas", 1, "minReplicas", None),
        ("minPodAge", "1h30m", "minPodAge", "1h30m"),
        ("evictLocalStoragePods", True, "localStorage", "allow"),
        ("evictLocalStoragePods", False, "localStorage", None),
        ("ignorePvcPods", True, "protectedStorageClasses", ["*"]),
        ("ignorePodsWithoutPDB", True, "podsWithoutPdb", "refuse"),
        (
            "podProtections",
            {"defaultDisabled": ["PodsWithLocalStorage", "DaemonSetPods"]},
            "localStorage",
            "allow",
        ),
        (
            "podProtections",
            {"extraEnabled": ["PodsWithPVC", "PodsWithResourceClaims"]},
            "protectedStorageClasses",
            ["*"],
        ),
        (
            "podProtections",
            {
                "extraEnabled": ["PodsWithPVC"],
                "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}},
            },
            "protectedStorageClasses",
            ["fast"],
        ),
        ("podProtections", {"extraEnabled": ["PodsWithoutPDB"]}, "podsWithoutPdb", "refuse"),
    ],
)
def test_arguments_of_the_default_evictor(
    argument: str, value: Any, key: str, written: Any
) -> None:
    assert evictor(**{argument: value}).get(key) == written


@pytest.mark.parametrize(
    ("argument", "value", "key", "written"),
    [
        ("maxNoOfPodsToEvictTotal", 20, "maxReschedulePods", 20),
        ("maxNoOfPodsToEvictPerNamespace", 3, "maxPerNamespace", 3),
        ("maxNoOfPodsToEvictPerNode", 4, "maxInFlightPerNode", 4),
        ("gracePeriodSeconds", 90, "evictionGracePeriod", "90s"),
        ("gracePeriodSeconds", 0, "evictionGracePeriod", None),
    ],
)
def test_arguments_of_the_policy(argument: str, value: Any, key: str, written: Any) -> None:
    assert converted(profile(LowNodeUtilization=LOW), **{argument: value}).get(key) == written


def test_prometheus_needs_its_address() -> None:
    asks = LOW | {"metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "x"}}}
    there = [{"source": "Prometheus", "prometheus": {"url": "http://prometheus:9090"}}]
    found = converted(profile(LowNodeUtilization=asks), metricsProviders=there)
    assert found["usageSource"] == "prometheus"
    assert found["prometheus"] == {"url": "http://prometheus:9090"}
    assert "usageSource" not in converted(profile(LowNodeUtilization=asks))


@pytest.mark.parametrize(
    ("args", "age"), [({}, "3600s"), ({"minPodLifetimeSeconds": 0}, "0s")], ids=["default", "set"]
)
def test_failed_pods_stay_as_long_as_the_plugin_leaves_them(args: Json, age: str) -> None:
    found = converted(profile(RemoveFailedPods=args))
    assert found["hygiene"]["failedPods"] == [{"minAge": age}]


def test_namespaces_of_a_plugin_become_rules_of_its_strategy() -> None:
    first = profile(LowNodeUtilization=LOW | {"evictableNamespaces": {"exclude": ["db", "etl"]}})
    assert converted(first)["namespaces"] == [
        {
            "selector": "kubernetes.io/metadata.name in (db, etl)",
            "modes": {"ResourceOptimization": "observe"},
        }
    ]


def test_namespaces_that_are_not_included_are_observed() -> None:
    first = profile(LowNodeUtilization=LOW | {"evictableNamespaces": {"include": ["web"]}})
    deviates = LOW | {"useDeviationThresholds": True}
    second = profile(LowNodeUtilization=deviates | {"evictableNamespaces": {"exclude": ["web"]}})
    assert converted(first, second)["namespaces"] == [
        {
            "selector": "kubernetes.io/metadata.name in (web)",
            "modes": {"LoadBalancing": "observe"},
        },
        {"selector": "", "modes": {"ResourceOptimization": "observe"}},
    ]


def test_of_several_profiles_the_stricter_values_hold() -> None:
    one = profile(
        LowNodeUtilization=LOW,
        DefaultEvictor={"minReplicas": 2, "minPodAge": "90m", "evictLocalStoragePods": True},
    )
    other = profile(
        LowNodeUtilization=LOW | {"targetThresholds": {"cpu": 80, "memory": 50}},
        DefaultEvictor={"minReplicas": 3, "minPodAge": "1h"},
    )
    found = converted(one, other)
    assert (found["cpuThreshold"], found["memoryThreshold"]) == (70, 50)
    assert (found["minReplicas"], found["minPodAge"]) == (3, "90m")
    assert "localStorage" not in found


def test_profiles_that_select_different_pods_only_observe() -> None:
    one = profile(
        LowNodeUtilization=LOW, DefaultEvictor={"labelSelector": {"matchLabels": {"a": "b"}}}
    )
    found = converted(one, profile(LowNodeUtilization=LOW))
    assert "podSelector" not in found
    assert found["modes"] == {"ResourceOptimization": "observe"}


def test_a_strategy_that_this_version_lacks_is_named_and_left_out() -> None:
    asked = policy(profile(LowNodeUtilization=LOW, RemoveDuplicates={}))
    found = convert(asked, "policy.yaml", frozenset({"ResourceOptimization"}))
    assert found.configuration["enabledStrategies"] == ["ResourceOptimization"]
    assert "RemoveDuplicates (this version has no strategy Duplicates)" in str(found.notes[-1])


def test_what_is_unknown_or_not_enabled_is_named() -> None:
    first = profile(LowNodeUtilization=LOW | {"shiny": 1}, Ours={})
    first["pluginConfig"].append({"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 1}})
    found = verdicts(first, novelty=True)
    assert found["LowNodeUtilization.shiny"] is Verdict.DROPPED
    assert found["Ours"] is Verdict.DROPPED
    assert found["PodLifeTime"] is Verdict.DROPPED
    assert found["novelty"] is Verdict.DROPPED


def test_a_disabled_plugin_is_not_translated() -> None:
    first = profile(LowNodeUtilization=LOW, RemoveDuplicates={})
    first["plugins"]["deschedule"]["disabled"] = ["RemoveDuplicates"]
    assert verdicts(first)["RemoveDuplicates"] is Verdict.DROPPED


def test_a_config_map_holds_a_policy() -> None:
    packed = {"kind": "ConfigMap", "data": {"p.yaml": policy(profile(LowNodeUtilization=LOW))}}
    assert convert(yaml.safe_dump(packed), "x").configuration["cpuThreshold"] == 70


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "is not YAML"),
        ("kind: Pod", "is not a DeschedulerPolicy"),
        ("3", "is not a DeschedulerPolicy"),
        ("apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy", "plugins of a profile"),
        ("apiVersion: descheduler/v9\nkind: DeschedulerPolicy", "must be descheduler/v1alpha2"),
        ("kind: ConfigMap", "must hold one DeschedulerPolicy"),
        ("kind: ConfigMap\ndata: [1]", "must hold one DeschedulerPolicy"),
        (policy(), "enables no plugin"),
        (policy(profile(LowNodeUtilization={"numberOfNodes": "x"})), "line 7: .*Expected int"),
        (policy(profile(LowNodeUtilization={"targetThresholds": {"cpu": 0}})), "above 0"),
        (
            policy(
                profile(
                    LowNodeUtilization={"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}
                )
            ),
            "only one of",
        ),
        (
            policy(profile(LowNodeUtilization=LOW | {"evictableNamespaces": {"include": ["A b"]}})),
            "translated",
        ),
        (
            policy(
                profile(
                    LowNodeUtilization=LOW,
                    DefaultEvictor={
                        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}
                    },
                )
            ),
            "Like is not an operator",
        ),
        (
            policy(
                profile(
                    LowNodeUtilization=LOW,
                    DefaultEvictor={"podProtections": {"extraEnabled": ["Nothing"]}},
                )
            ),
            "is not a protection",
        ),
        (policy({"plugins": 3}), r"^policy.yaml: line 4: profiles\[0\].plugins: Expected object"),
        (policy(3), r"^policy.yaml: line 4: profiles\[0\]: Expected object, got int$"),
        (policy(profile(RemoveFailedPods=[1])), r"pluginConfig\[0\].args: Expected object"),
        (policy(profile(PodLifeTime={"maxPodLifeTimeSeconds": "x"})), "Expected int"),
        (policy(profile(PodLifeTime={"states": [7]})), r"args.states\[0\]: Expected str"),
        (
            "a: &a [x, x]\n"
            + "".join(
                f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi")
            ),
            "more than 100,000 values",
        ),
        ("kind: DeschedulerPolicy\n---\nkind: ConfigMap\n", "only one document"),
    ],
)
def test_what_cannot_be_translated_is_an_error(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        convert(text, "policy.yaml")
    assert re.search(why, str(caught.value)), str(caught.value)


def test_every_row_has_its_line_on_the_page() -> None:
    assert policy_page.tables() in policy_page.PAGE.read_text(encoding="utf-8")
    assert len(PLUGINS) == 11
    assert len(POLICY) == 8


def test_the_example_on_the_page_is_what_comes_out() -> None:
    text = policy_page.PAGE.read_text(encoding="utf-8")
    asked, promised = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[:2]
    found = parse_config(convert(asked, "x").text, RebalancerConfiguration, "x")
    assert found == parse_config(promised, RebalancerConfiguration, "page")
