# SPDX-License-Identifier: Apache-2.0
"""Plans of random clusters keep the rules of random pools, namespaces and schedules.

What must hold is read from docs/rules.md and computed here, by plain loops over labels.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.api.migrations import MoveReason
from common.api.objects import Namespace
from rebalancer.goals import AtMost, Spread
from rebalancer.planner import Move, Plan
from simulator import build
from tests.support.oracles.plan_checker import at_once
from tests.support.worlds.planner import NOW_S, PlannerWorld
from tests.support.worlds.wire import stamped, wire

Json = dict[str, Any]  # Any: a part of a configuration
Labels = Mapping[str, str]

LEVELING, CEILINGS = "LoadBalancing", "ResourceOptimization"
SLACK = 0.01
"""Points that rounding may cost."""
BAND = 1.0
"""Points above a ceiling in which a node may have a goal or not."""
OPEN = [{"schedule": "* * * * *", "duration": "1m"}]
CLOSED = [{"schedule": "0 22 * * *", "duration": "1h"}]
"""`NOW_S` is eight in the morning."""
assert NOW_S % 86_400 == 8 * 3600


class Rule(NamedTuple):
    """A rule as a file has it, and what a person takes its selector to mean."""

    given: Json
    means: Callable[[Labels], bool]


class Drawn(NamedTuple):
    """A cluster, and the rules that hold in it."""

    world: PlannerWorld
    config: Json
    pools: Sequence[Rule]
    spaces: Sequence[Rule]
    nodes: Mapping[str, Labels]

    def pool(self, node: str) -> Json:
        labels = self.nodes[node]
        return next((rule.given for rule in self.pools if rule.means(labels)), {})

    def space(self, namespace: str) -> Json:
        labels = {"kubernetes.io/metadata.name": namespace, **SPACES[namespace]}
        return next((rule.given for rule in self.spaces if rule.means(labels)), {})

    def ceilings(self, node: str) -> tuple[float, float]:
        pool = self.pool(node)
        cpu, memory = ({**self.config, **pool}[k] for k in ("cpuThreshold", "memoryThreshold"))
        return cpu, memory

    def enabled(self, node: str) -> Sequence[str]:
        found: Sequence[str] = self.pool(node).get("enabledStrategies", [LEVELING, CEILINGS])
        return found

    def limit(self, rule: Json, key: str, general: int | None) -> int | None:
        found: int | None = rule.get("limits", {}).get(key, general)
        return found


SPACES: dict[str, Labels] = {"shop": {"team": "a"}, "bank": {"team": "b"}, "labs": {}}


def selected(dice: random.Random, key: str, values: Sequence[str]) -> tuple[Any, Any]:
    one, *others = dice.sample(values, len(values))
    found: list[tuple[Any, Callable[[Labels], bool]]] = [
        ({key: one}, lambda labels: labels.get(key) == one),
        (f"{key} notin ({one})", lambda labels: labels.get(key) != one),
        (f"{key}!={one},{key}", lambda labels: labels.get(key, one) != one),
        (f"!{key}", lambda labels: key not in labels),
        ("", lambda _: True),
    ]
    return found[min(dice.randrange(8), len(found) - 1) if others else 0]


def sometimes(dice: random.Random, share: float, rule: Json, key: str, *values: Any) -> None:
    if dice.random() < share:
        rule[key] = dice.choice(values)


def drawn_modes(dice: random.Random, rule: Json) -> None:
    strategies = [LEVELING, CEILINGS]
    modes = {s: dice.choice(["act", "observe"]) for s in strategies if dice.random() < 0.2}
    rule |= {"modes": modes} if modes else {}


def drawn_pool(dice: random.Random, number: int) -> Rule:
    selector, means = selected(dice, dice.choice(["pool", "disk"]), ["web", "batch", "db"])
    rule: Json = {"name": f"p{number}", "nodeSelector": selector}
    sometimes(dice, 0.5, rule, "cpuThreshold", 40.0, 65.0, 95.0)
    sometimes(dice, 0.3, rule, "memoryThreshold", 50.0, 90.0)
    sometimes(dice, 0.4, rule, "imbalanceThreshold", 5.0, 15.0, 60.0)
    sometimes(dice, 0.3, rule, "enabledStrategies", [], [LEVELING], [CEILINGS], ["NodeMaintenance"])
    sometimes(dice, 0.3, rule, "schedule", OPEN, CLOSED, [*CLOSED, *OPEN])
    limits: Json = {}
    sometimes(dice, 0.4, limits, "maxReschedulePods", 1, 2)
    sometimes(dice, 0.4, limits, "maxInFlightPerNode", 1, 4)
    sometimes(dice, 0.4, limits, "maxInboundPerNode", 1, 2)
    drawn_modes(dice, rule)
    return Rule({**rule, "limits": limits}, means)


def drawn_space(dice: random.Random, _: int) -> Rule:
    if dice.random() < 0.5:
        selector, means = selected(dice, "kubernetes.io/metadata.name", list(SPACES))
    else:
        selector, means = selected(dice, "team", ["a", "b"])
    rule: Json = {"selector": selector}
    sometimes(dice, 0.3, rule, "schedule", OPEN, CLOSED)
    if dice.random() < 0.3:
        rule["limits"] = {"maxPerNamespace": dice.choice([1, 2])}
    drawn_modes(dice, rule)
    return Rule(rule, means)


def drawn(seed: int) -> Drawn:
    dice = random.Random(seed)
    pools = [drawn_pool(dice, number) for number in range(dice.randint(0, 4))]
    spaces = [drawn_space(dice, number) for number in range(dice.randint(0, 3))]
    config: Json = {
        "mode": dice.choice(["act", "observe"]),
        "cpuThreshold": dice.choice([60.0, 80.0]),
        "memoryThreshold": 80.0,
        "imbalanceThreshold": dice.choice([10.0, 20.0]),
        "maxReschedulePods": dice.choice([5, 20]),
        "maxInFlightPerNode": dice.choice([2, 6]),
        "maxInboundPerNode": dice.choice([3, 6]),
        "pools": [rule.given for rule in pools],
        "namespaces": [rule.given for rule in spaces],
    }
    sometimes(dice, 0.2, config, "schedule", OPEN, CLOSED)
    sometimes(dice, 0.3, config, "poolLabel", "disk", "pool")
    sometimes(dice, 0.3, config, "schedules", {LEVELING: CLOSED}, {CEILINGS: OPEN})
    world, nodes = PlannerWorld(config=config), {}
    for name, labels in SPACES.items():
        world.state.namespaces.upsert(
            wire(Namespace, stamped(build.namespace(name, labels=dict(labels))))
        )
    for number in range(dice.randint(3, 8)):
        values = {key: dice.choice(["web", "batch", "db"]) for key in ("pool", "disk")}
        labels = {key: value for key, value in values.items() if dice.random() < 0.7}
        nodes[f"n{number}"] = labels
        world.node(f"n{number}", labels=labels)
        full = dice.choice([dice.uniform(0.0, 20.0), dice.uniform(70.0, 100.0)])
        while full > 4.0:
            cpu = dice.uniform(2.0, 20.0)
            full -= cpu
            owner = f"w{dice.randrange(12)}"
            world.pod(
                f"{owner}-{len(world.made_pods)}",
                f"n{number}",
                (cpu, dice.uniform(0.3, 1.0) * cpu),
                owner=owner,
                replicas=12,
                namespace=sorted(SPACES)[int(owner[1:]) % 3],
            )
    return Drawn(world, config, pools, spaces, nodes)


def faults(asked: Drawn, plan: Plan) -> Iterator[str]:
    for move in plan.moves:
        yield from faults_of(asked, move)
    yield from over_limits(asked, [move for move in plan.moves if move.this_cycle])
    left = {node.name: (node.after.cpu, node.after.memory) for node in plan.nodes}
    moved = {name for move in plan.moves for name in (move.source, move.target)}
    for name in moved:
        if any(m.target == name for m in plan.moves):
            for level, most in zip(left[name], asked.ceilings(name), strict=True):
                if level > most + SLACK:
                    yield f"{name} gets pods and is left at {level}, above {most}"


def faults_of(asked: Drawn, move: Move) -> Iterator[str]:
    pool, space = asked.pool(move.source), asked.space(move.pod.partition("/")[0])
    makes_room = move.reason == MoveReason.MAKES_ROOM
    if move.strategy not in asked.enabled(move.source) and not makes_room:
        yield f"{move.pod} leaves {move.source} for {move.strategy}, which is off there"
    if not {LEVELING, CEILINGS}.intersection(asked.enabled(move.source)):
        yield f"{move.pod} leaves a pool without a strategy for load"
    if closed(space):
        yield f"{move.pod} is chosen although the schedule of its namespace is closed"
    said = [rule["modes"].get(move.strategy) for rule in (pool, space) if "modes" in rule]
    own = asked.config.get("schedules", {}).get(move.strategy)
    general = asked.config.get("schedule") if own is None else own
    waits = general == CLOSED or closed(pool)
    if move.this_cycle and ("observe" in said or waits):
        yield f"{move.pod} is moved in this cycle although a rule waits or observes"
    node_acts = pool.get("modes", {}).get(move.strategy, asked.config["mode"]) == "act"
    if node_acts and space.get("modes", {}).get(move.strategy) == "observe":
        yield f"{move.pod} is chosen for {move.strategy}, which its namespace only observes"


def closed(rule: Json) -> bool:
    return bool(rule.get("schedule") == CLOSED)


def over_limits(asked: Drawn, now: Sequence[Move]) -> Iterator[str]:
    config = asked.config
    if len(now) > config["maxReschedulePods"]:
        yield "more than maxReschedulePods"
    for pool, count in Counter(asked.pool(m.source).get("name") for m in now).items():
        rule = next((each.given for each in asked.pools if each.given["name"] == pool), {})
        most = asked.limit(rule, "maxReschedulePods", None)
        if most is not None and count > most:
            yield f"{count} leave pool {pool}"
    for node, count in at_once(now, lambda m: m.source).items():
        pool = asked.pool(node)
        if count > (asked.limit(pool, "maxInFlightPerNode", config["maxInFlightPerNode"]) or 0):
            yield f"{count} leave {node}"
    for node, count in at_once(now, lambda m: m.target).items():
        pool = asked.pool(node)
        if count > (asked.limit(pool, "maxInboundPerNode", config["maxInboundPerNode"]) or 0):
            yield f"{count} go to {node}"
    for name, count in Counter(m.pod.partition("/")[0] for m in now).items():
        most = asked.limit(asked.space(name), "maxPerNamespace", None)
        if most is not None and count > most:
            yield f"{count} of namespace {name}"


@example(60)  # a pod may not leave for a ceiling, and may for the spread that is left afterwards
@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_a_plan_keeps_the_rules(seed: int) -> None:
    asked = drawn(seed)
    assert list(faults(asked, asked.world.plan())) == []


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_every_node_has_the_goals_of_its_own_pool(seed: int) -> None:
    """No other ceiling, no node left out, and only nodes of one pool are compared."""
    asked = drawn(seed)
    demand = asked.world.demand()
    goals, load = demand.assessment.goals, demand.cluster.load.nodes
    ceilings = {g.node: g.ceiling for g in goals if isinstance(g, AtMost)}
    for name in asked.nodes:
        cpu, memory = asked.ceilings(name)
        level = load[next(n for n in load if n == name)]
        excess = max(level.cpu_percent - cpu, level.mem_percent - memory)
        found = {(c.cpu_percent, c.mem_percent) for node, c in ceilings.items() if node == name}
        if excess <= 0.0 or CEILINGS not in asked.enabled(name):
            assert not found
        elif excess > BAND:
            assert found == {(cpu, memory)}
    for goal in goals:
        if isinstance(goal, Spread):
            rules = [asked.pool(node) for node in goal.nodes]
            assert all(rule == rules[0] for rule in rules)
            key = asked.config.get("poolLabel", "")
            assert len({asked.nodes[node].get(key) for node in goal.nodes}) == 1
            general = asked.config["imbalanceThreshold"]
            assert goal.points == rules[0].get("imbalanceThreshold", general)
            assert LEVELING in asked.enabled(goal.nodes[0])
