# SPDX-License-Identifier: Apache-2.0
"""What holds for a node or a pod, and which rule decided."""

from __future__ import annotations

from datetime import datetime
from textwrap import dedent
from typing import Any

import pytest

from common.config import (
    FOR_LOAD,
    GENERAL,
    REPAIRS,
    ConfigError,
    ExtenderConfiguration,
    Mode,
    PoolIndex,
    RebalancerConfiguration,
    Rules,
    Strategy,
    Thresholds,
    effective,
    load_settings_hash,
    parse_config,
)

HEAD = "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\n"
LEVELING, CEILINGS = Strategy.LOAD_BALANCING, Strategy.RESOURCE_OPTIMIZATION
DRAINING = Strategy.NODE_MAINTENANCE
NIGHT = [{"schedule": "0 22 * * *", "duration": "8h", "timeZone": "Europe/Berlin"}]
EVENING = [{"schedule": "0 18 * * *", "duration": "8h", "timeZone": "Europe/Berlin"}]


def config(**given: Any) -> RebalancerConfiguration:
    return RebalancerConfiguration.model_validate(given)


def parsed(text: str) -> RebalancerConfiguration:
    return parse_config(HEAD + dedent(text), RebalancerConfiguration, "config.yaml")


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parsed(text)
    return str(error.value)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


POOLS = [
    {"name": "batch", "nodeSelector": "pool=batch", "cpuThreshold": 95.0},
    {
        "name": "web",
        "nodeSelector": "pool in (web, edge)",
        "memoryThreshold": 60.0,
        "imbalanceThreshold": 10.0,
        "enabledStrategies": ["LoadBalancing"],
        "limits": {"maxInboundPerNode": 1, "maxReschedulePods": 3},
    },
    {"name": "rest-of-web", "nodeSelector": "pool=web", "cpuThreshold": 1.0},
]


@pytest.mark.parametrize(
    ("labels", "pool", "thresholds"),
    [
        ({"pool": "batch"}, "batch", (95.0, 80.0)),
        ({"pool": "web"}, "web", (70.0, 60.0)),
        ({"pool": "edge"}, "web", (70.0, 60.0)),
        ({"pool": "other"}, "", (70.0, 80.0)),
        ({}, "", (70.0, 80.0)),
    ],
)
def test_the_first_pool_that_matches_holds(
    labels: dict[str, str], pool: str, thresholds: tuple[float, float]
) -> None:
    asked = config(pools=POOLS, cpuThreshold=70.0)
    rules = Rules(asked).of_node(labels)
    assert (rules.name, rules.thresholds) == (pool, Thresholds(*thresholds))
    assert PoolIndex(asked).thresholds_of(labels) == Thresholds(*thresholds)


def test_a_pool_changes_what_it_sets_and_nothing_else() -> None:
    rules = Rules(config(pools=POOLS, maxInFlightPerNode=7)).of_node({"pool": "web"})
    assert rules.enabled_strategies == (LEVELING,)
    assert rules.imbalance_threshold == 10.0
    assert (rules.max_inbound_per_node, rules.max_reschedule_pods) == (1, 3)
    assert (rules.max_in_flight_per_node, rules.maintenance_parallelism) == (7, 5)
    assert rules.words == "pool web"


def test_strategies_of_any_pool_are_enabled_somewhere() -> None:
    pools = [{"name": "a", "nodeSelector": "a=b", "enabledStrategies": ["NodeMaintenance"]}]
    rules = Rules(config(pools=pools, enabledStrategies=["LoadBalancing"]))
    assert rules.enabled_anywhere() == {LEVELING, DRAINING}


@pytest.mark.parametrize(
    ("general", "pool", "namespace", "mode", "by"),
    [
        ("observe", None, None, Mode.OBSERVE, GENERAL),
        ("act", None, None, Mode.ACT, GENERAL),
        ("observe", "act", None, Mode.ACT, "pool p"),
        ("act", "observe", None, Mode.OBSERVE, "pool p"),
        ("observe", None, "act", Mode.ACT, "namespaces[0] (all)"),
        ("act", None, "observe", Mode.OBSERVE, "namespaces[0] (all)"),
        ("observe", "act", "act", Mode.ACT, "namespaces[0] (all)"),
        ("act", "act", "observe", Mode.OBSERVE, "namespaces[0] (all)"),
        ("act", "observe", "act", Mode.OBSERVE, "pool p"),
    ],
)
def test_the_mode_and_who_decided_it(
    general: str, pool: str | None, namespace: str | None, mode: Mode, by: str
) -> None:
    modes = {"LoadBalancing": pool} if pool else {}
    ours = {"LoadBalancing": namespace} if namespace else {}
    asked = config(
        mode=general,
        pools=[{"name": "p", "nodeSelector": "", "modes": modes}],
        namespaces=[{"selector": "", "modes": ours}],
    )
    rules = Rules(asked)
    found = rules.mode_of(LEVELING, rules.of_node({}), rules.of_namespace("shop", {}))
    assert (found.mode, found.by) == (mode, by)
    other = rules.mode_of(CEILINGS, rules.of_node({}), rules.of_namespace("shop", {}))
    assert (other.mode.value, other.by) == (general, GENERAL)


def test_every_strategy_moves_for_load_repairs_or_drains() -> None:
    assert {*FOR_LOAD, *REPAIRS, DRAINING} == set(Strategy)
    assert len(FOR_LOAD) + len(REPAIRS) + 1 == len(Strategy)


@pytest.mark.parametrize("strategy", FOR_LOAD | REPAIRS, ids=str)
def test_rules_hold_for_every_strategy_that_drains_no_node(strategy: Strategy) -> None:
    pool = {"name": "p", "nodeSelector": "a=b", "enabledStrategies": [strategy.value]}
    rules = Rules(
        config(
            schedules={strategy.value: NIGHT},
            pools=[{**pool, "modes": {strategy.value: "act"}}],
            namespaces=[{"selector": "team=x", "modes": {strategy.value: "observe"}}],
        )
    )
    node, other = rules.of_node({"a": "b"}), rules.of_node({})
    team, rest = rules.of_namespace("n", {"team": "x"}), rules.of_namespace("n", {})
    noon, night = at("2026-11-18T12:00+01:00"), at("2026-11-18T23:00+01:00")
    found = [rules.mode_of(strategy, n, s).mode.value for n, s in ((node, rest), (node, team))]
    assert (*found, rules.mode_of(strategy, other, rest).mode.value) == (
        "act",
        "observe",
        "observe",
    )
    closed = [rules.closed(strategy, other, None, now_s) is not None for now_s in (noon, night)]
    assert closed == [True, False]
    assert strategy in node.enabled_strategies
    assert node.gives_pods
    assert node.gives_for_load == (strategy in FOR_LOAD)


def test_a_namespace_can_be_selected_by_its_name() -> None:
    """Also if its labels are not known yet, or it has none."""
    name = "kubernetes.io/metadata.name"
    rules = Rules(
        config(namespaces=[{"selector": {name: "shop"}}, {"selector": "tier=gold"}]),
    )
    assert rules.of_namespace("shop", {"tier": "gold"}).words == f"namespaces[0] ({name}=shop)"
    assert rules.of_namespace("bank", {"tier": "gold"}).words == "namespaces[1] (tier=gold)"
    assert rules.of_namespace("bank", {}).words == GENERAL


@pytest.mark.parametrize(
    ("strategy", "now", "closed"),
    [
        (LEVELING, "2026-11-18T23:00+01:00", ""),
        (LEVELING, "2026-11-18T19:00+01:00", "the configuration 2026-11-18 22:00"),
        (LEVELING, "2026-11-18T12:00+01:00", "the configuration 2026-11-18 22:00"),
        (LEVELING, "2026-11-19T03:00+01:00", "pool p 2026-11-19 18:00"),
        # Its own schedule instead of the general one, and the others as well.
        (CEILINGS, "2026-11-18T19:00+01:00", ""),
        (CEILINGS, "2026-11-18T12:00+01:00", "ResourceOptimization 2026-11-18 18:00"),
        # None of these binds a drain.
        (DRAINING, "2026-11-18T12:00+01:00", ""),
    ],
)
def test_every_schedule_that_applies_must_be_open(
    strategy: Strategy, now: str, closed: str
) -> None:
    asked = config(
        schedule=NIGHT,
        schedules={"ResourceOptimization": EVENING},
        pools=[{"name": "p", "nodeSelector": "", "schedule": EVENING}],
    )
    rules = Rules(asked)
    found = rules.closed(strategy, rules.of_node({}), rules.of_namespace("shop", {}), at(now))
    shown = "" if found is None else f"{found.by} {found.opening}".removesuffix(" Europe/Berlin")
    assert shown == closed


def test_a_closed_namespace_names_itself_and_when_it_opens() -> None:
    rules = Rules(config(namespaces=[{"selector": "tier=gold", "schedule": NIGHT}]))
    node, gold = rules.of_node({}), rules.of_namespace("shop", {"tier": "gold"})
    found = rules.closed(LEVELING, node, gold, at("2026-11-18T12:00+01:00"))
    assert found is not None
    assert found.words == (
        "the schedule of namespaces[0] (tier=gold), which opens 2026-11-18 22:00 Europe/Berlin"
    )


def test_maintenance_has_its_own_schedule() -> None:
    rules = Rules(config(maintenance={"schedule": NIGHT}))
    node, pods = rules.of_node({}), rules.of_namespace("shop", {})
    noon = at("2026-11-18T12:00+01:00")
    assert rules.closed(DRAINING, node, pods, noon) is not None
    assert rules.closed(LEVELING, node, pods, noon) is None


def test_labels_as_in_a_pod_are_a_selector() -> None:
    found = parsed("pools: [{name: a, nodeSelector: {disk: ssd, cores: 8}}]")
    assert found.pools[0].node_selector == "disk=ssd,cores=8"
    written = effective(found)["pools"][0]
    assert written["nodeSelector"] == "disk=ssd,cores=8"
    assert RebalancerConfiguration.model_validate(effective(found)) == found


LISTED = "usageSource: prometheus\nprometheus: {url: 'http://p:9090', resources: "
GPU = "{name: gpu, nodeQuery: a, podQuery: b"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pools: [{name: a}]", "line 3: pools[0].nodeSelector: missing"),
        (
            "pools:\n- {name: a, nodeSelector: x=y, cpuTreshold: 3}",
            "line 4: pools[0].cpuTreshold: unknown key, did you mean cpuThreshold?",
        ),
        ("pools: [{name: A B, nodeSelector: x}]", "A B is not a pool name"),
        (
            "pools: [{name: a, nodeSelector: x}, {name: a, nodeSelector: z}]",
            "pools: a is listed twice",
        ),
        ("pools: [{name: a, nodeSelector: 'x in'}]", "pools[0].nodeSelector"),
        # YAML and text of selectors would change what people meant.
        ("pools: [{name: a, nodeSelector: {gpu: true}}]", "the value of gpu must be text: put it"),
        ("pools: [{name: a, nodeSelector: {v: 1.10}}]", "the value of v must be text: put it in"),
        ("pools: [{name: a, nodeSelector: {v: null}}]", "the value of v must be text: put it in"),
        ("pools: [{name: a, nodeSelector: {v: [b]}}]", "the value of v must be text: put it in"),
        ("pools: [{name: a, nodeSelector: {matchLabels: {a: b}}}]", "matchLabels is not used here"),
        (
            "pools: [{name: a, nodeSelector: {a: 'b,c=d'}}]",
            "'b,c=d' cannot be the value of a label",
        ),
        (
            "namespaces: [{selector: {'a in (b),c': d}}]",
            "'a in (b),c' cannot be the name of a label",
        ),
        ("pools: [{name: a, nodeSelector: x, cpuThreshold: 0}]", "must be above 0"),
        ("namespaces: [{selector: x, cpuThreshold: 70}]", "unknown key"),
        (
            "namespaces: [{selector: x, modes: {NodeMaintenance: observe}}]",
            "no namespace keeps a node from being drained",
        ),
        (
            "schedules: {LoadBalancing: [{schedule: 0 22 * * *, durration: 8h}]}",
            "unknown key, did you mean duration?",
        ),
        (
            "schedules: {NodeMaintenance: [{schedule: 0 22 * * *, duration: 8h}]}",
            "NodeMaintenance has its own schedule: maintenance.schedule",
        ),
        ("schedule: [{schedule: 0 25 * * *, duration: 8h}]", "schedule[0].schedule: 0 25 * * * is"),
        ("schedule: [{schedule: 0 22 * * *}]", "schedule[0].duration: missing"),
        (
            "schedule: [{schedule: 0 0 31 2 *, duration: 8h}]",
            "schedule[0].schedule: 0 0 31 2 * is",
        ),
        (
            "schedule: [{schedule: 0 22 * * *, duration: 8h, timeZone: Europe/Atlantis}]",
            "schedule[0].timeZone: Europe/Atlantis is not a time zone",
        ),
        (
            "pools: [{name: a, nodeSelector: x, resourceThresholds: {gpu: 50}}]",
            "pools: a sets a threshold for gpu, which is not in prometheus.resources",
        ),
        (
            f"{LISTED}[{GPU}, capacity: 1}}, {GPU}, capacity: 2}}]}}",
            "gpu is listed twice",
        ),
        (
            f"{LISTED}[{GPU}}}]}}",
            "set one of capacity, capacityQuery and allocatable",
        ),
        (
            f"{LISTED}[{GPU}, capacity: 1, allocatable: a/b}}]}}",
            "set one of capacity",
        ),
        (f"{LISTED}[{GPU}, capacity: 0}}]}}", "must be above 0"),
        (
            f"{LISTED}[{{name: cpu, nodeQuery: a, podQuery: b, capacity: 1}}]}}",
            "cpu is not a name for a resource",
        ),
    ],
)
def test_rules_that_cannot_be_read_are_refused(text: str, why: str) -> None:
    assert why in problem(text)


def test_the_hash_covers_what_pools_say_about_load_and_nothing_else() -> None:
    def hashed(**pool: Any) -> str:
        given = {"name": "a", "nodeSelector": "x=y", **pool}
        extender = ExtenderConfiguration.model_validate({"pools": [given]})
        assert load_settings_hash(extender) == load_settings_hash(config(pools=[given]))
        return load_settings_hash(extender)

    plain = hashed()
    assert plain != load_settings_hash(config())
    assert hashed(name="b") == hashed(modes={"LoadBalancing": "act"}) == plain
    assert hashed(schedule=NIGHT) == hashed(imbalanceThreshold=3.0) == plain
    others = {hashed(cpuThreshold=70.0), hashed(memoryThreshold=70.0), hashed(nodeSelector="x=z")}
    assert len({plain, *others}) == 4


def test_the_hash_covers_further_resources_and_is_as_before_without_them() -> None:
    def hashed(*resources: dict[str, Any], **pool: Any) -> str:
        asked = {
            "usageSource": "prometheus",
            "prometheus": {"url": "http://p:9090", "resources": list(resources)},
            "pools": [{"name": "a", "nodeSelector": "x=y", **pool}],
        }
        return load_settings_hash(config(**asked))

    gpu = {"name": "gpu", "nodeQuery": "a", "podQuery": "b", "capacity": 4.0}
    found = {hashed(), hashed(gpu), hashed({**gpu, "threshold": 60.0})}
    assert len({*found, hashed(gpu, resourceThresholds={"gpu": 50.0})}) == 4
