# SPDX-License-Identifier: Apache-2.0
"""What holds for a node and for a pod: the one place that says so, and by which rule.

A node is in the first of `pools` that matches its labels, or in none; a namespace follows the
first of `namespaces` that matches it. What a rule does not set comes from the configuration.

* Thresholds, strategies and limits: those of the pool, where it sets them.
* Mode: what the pool of the pod's node and its namespace say for the strategy. Where both say
  something, both must say `act`; where none does, the configuration decides.
* Windows: a move for load begins only while every schedule that applies is open: that of its
  strategy (`schedules`, else `schedule`), of the pool and of the namespace. Draining a node has a
  schedule of its own, `maintenance.schedule`, and none of these.

Pure. There are as many answers as rules, so they are shared objects that can be compared by
identity; asking costs the matching of a few labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from common.cluster.selectors import EVERYTHING, Selector, parse
from common.config.choices import Mode, Strategy
from common.config.pools import NamespaceRule, Pool
from common.config.rebalancer import RebalancerConfiguration
from common.config.schedules import Opening, Schedule, next_opening
from common.config.shared import LoadSettings

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label that the API server gives every namespace
(pkg/registry/core/namespace/strategy.go)."""
FOR_LOAD: Final = frozenset(
    {Strategy.LOAD_BALANCING, Strategy.RESOURCE_OPTIMIZATION, Strategy.CONSOLIDATION}
)
REPAIRS: Final = frozenset(
    {
        Strategy.VIOLATIONS,
        Strategy.DUPLICATES,
        Strategy.PREFERRED_NODES,
        Strategy.HYGIENE,
        Strategy.TOPOLOGY_SPREAD,
    }
)
"""State goals for pods, whatever their nodes use."""
GENERAL: Final = "the configuration"

Labels = Mapping[str, str]


class Thresholds(NamedTuple):
    """From where on a node is overloaded, in percent of its allocatable."""

    cpu: float
    memory: float
    further: tuple[float, ...] = ()
    """Of `prometheus.resources`, in their order."""


class PoolIndex:
    """Which pool a node is in, and its thresholds; both programs ask it."""

    def __init__(self, config: LoadSettings) -> None:
        self._general = _general(config)
        self._pools = tuple(
            (_selector(pool.node_selector), pool, _thresholds(pool, config))
            for pool in config.pools
        )

    def pool_of(self, labels: Labels) -> Pool | None:
        """Return the first pool that matches the labels of a node."""
        return next(self.matching(labels), None)

    def matching(self, labels: Labels) -> Iterator[Pool]:
        """Yield all pools that match the labels of a node; the first one holds."""
        return (pool for selector, pool, _ in self._pools if selector.matches(labels))

    def thresholds_of(self, labels: Labels) -> Thresholds:
        """Return the thresholds of a node with these labels."""
        for selector, _, thresholds in self._pools:
            if selector.matches(labels):
                return thresholds
        return self._general


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A mode, and the rule that decided it."""

    mode: Mode
    by: str


@dataclass(frozen=True, slots=True, eq=False)
class NodeRules:
    """What holds for a node."""

    config: RebalancerConfiguration
    pool: Pool | None

    @property
    def name(self) -> str:
        """The name of the pool; empty where no rule matches."""
        return self.pool.name if self.pool is not None else ""

    @property
    def words(self) -> str:
        """The rule as people see it: `pool batch`, or the configuration."""
        return f"pool {self.pool.name}" if self.pool is not None else GENERAL

    @property
    def thresholds(self) -> Thresholds:
        return _general(self.config) if self.pool is None else _thresholds(self.pool, self.config)

    @property
    def imbalance_threshold(self) -> float:
        own = self.pool.imbalance_threshold if self.pool is not None else None
        return self.config.imbalance_threshold if own is None else own

    @property
    def enabled_strategies(self) -> tuple[Strategy, ...]:
        own = self.pool.enabled_strategies if self.pool is not None else None
        return self.config.enabled_strategies if own is None else own

    @property
    def gives_for_load(self) -> bool:
        """Whether the pool has a strategy for load, if it names its strategies."""
        own = self.pool.enabled_strategies if self.pool is not None else None
        return own is None or not FOR_LOAD.isdisjoint(own)

    @property
    def gives_pods(self) -> bool:
        """Whether the pool has a strategy that moves pods but drains no node, if it names any."""
        own = self.pool.enabled_strategies if self.pool is not None else None
        return self.gives_for_load or not REPAIRS.isdisjoint(own or ())

    @property
    def schedule(self) -> Schedule:
        return self.pool.schedule if self.pool is not None else ()

    @property
    def max_reschedule_pods(self) -> int | None:
        """How many pods the pool gives per cycle; None where only the general limit binds."""
        return self.pool.limits.max_reschedule_pods if self.pool is not None else None

    @property
    def max_in_flight_per_node(self) -> int:
        own = self.pool.limits.max_in_flight_per_node if self.pool is not None else None
        return self.config.max_in_flight_per_node if own is None else own

    @property
    def max_inbound_per_node(self) -> int:
        own = self.pool.limits.max_inbound_per_node if self.pool is not None else None
        return self.config.max_inbound_per_node if own is None else own

    @property
    def maintenance_parallelism(self) -> int:
        own = self.pool.limits.maintenance_parallelism if self.pool is not None else None
        return self.config.maintenance_parallelism if own is None else own

    def sets(self, key: str) -> bool:
        """Tell whether the pool sets a key, by its name in code."""
        return self.pool is not None and getattr(self.pool, key) not in (None, (), {})

    def mode_of(self, strategy: Strategy) -> Decided:
        """Return the mode of a strategy for the node, whatever its pods say."""
        return _decided(self.config, strategy, self, None)


@dataclass(frozen=True, slots=True, eq=False)
class NamespaceRules:
    """What holds for the pods of a namespace."""

    config: RebalancerConfiguration
    rule: NamespaceRule | None
    number: int = 0

    @property
    def words(self) -> str:
        """The rule as people see it: `namespaces[0] (team=shop)`, or the configuration."""
        if self.rule is None:
            return GENERAL
        return f"namespaces[{self.number}] ({self.rule.selector or 'all'})"

    @property
    def schedule(self) -> Schedule:
        return self.rule.schedule if self.rule is not None else ()

    @property
    def max_per_namespace(self) -> int | None:
        own = self.rule.limits.max_per_namespace if self.rule is not None else None
        return self.config.max_per_namespace if own is None else own


class Closed(NamedTuple):
    """A schedule that is closed, the rule that it is of, and what it waits for."""

    by: str
    opening: Opening

    @property
    def words(self) -> str:
        """Return it as people see it."""
        return f"the schedule of {self.by}, which opens {self.opening}"


class Rules:
    """What holds for nodes and pods under one configuration."""

    def __init__(self, config: RebalancerConfiguration) -> None:
        self.config = config
        self._pools = PoolIndex(config)
        self._of_pool = {pool.name: NodeRules(config, pool) for pool in config.pools}
        self._of_no_pool = NodeRules(config, None)
        self._namespaces = tuple(
            (_selector(rule.selector), NamespaceRules(config, rule, number))
            for number, rule in enumerate(config.namespaces)
        )
        self._of_no_namespace = NamespaceRules(config, None)

    @property
    def any(self) -> bool:
        """Whether any rule says something else than the configuration around it."""
        return bool(self._of_pool or self._namespaces)

    @property
    def scheduled(self) -> bool:
        """Whether any schedule says when moves may begin."""
        config = self.config
        return bool(config.schedule or config.schedules or config.maintenance.schedule)

    def enabled_anywhere(self) -> frozenset[Strategy]:
        """Return the strategies that some node has."""
        found = set(self.config.enabled_strategies)
        for rules in self._of_pool.values():
            found.update(rules.enabled_strategies)
        return frozenset(found)

    def acts(self, strategy: Strategy) -> bool:
        """Tell whether a strategy may move any pod at all."""
        modes = [pool.modes.get(strategy) for pool in self.config.pools]
        modes += [rule.modes.get(strategy) for rule in self.config.namespaces]
        return Mode.ACT in (self.config.mode_of(strategy), *modes)

    def of_node(self, labels: Labels) -> NodeRules:
        """Return what holds for a node with these labels."""
        pool = self._pools.pool_of(labels) if self._of_pool else None
        return self._of_no_pool if pool is None else self._of_pool[pool.name]

    def of_namespace(self, name: str, labels: Labels) -> NamespaceRules:
        """Return what holds for the pods of a namespace with these labels."""
        return next(self.matching_namespace(name, labels), self._of_no_namespace)

    def matching_namespace(self, name: str, labels: Labels) -> Iterator[NamespaceRules]:
        """Yield all rules that match a namespace; the first one holds."""
        if self._namespaces:
            known = {**labels, NAMESPACE_NAME: name}
            yield from (rules for selector, rules in self._namespaces if selector.matches(known))

    def matching_node(self, labels: Labels) -> Iterator[NodeRules]:
        """Yield the rules of all pools that match a node; the first one holds."""
        return (self._of_pool[pool.name] for pool in self._pools.matching(labels))

    def mode_of(self, strategy: Strategy, node: NodeRules, namespace: NamespaceRules) -> Decided:
        """Return whether a strategy moves a pod of this namespace away from this node."""
        return _decided(self.config, strategy, node, namespace)

    def closed(
        self, strategy: Strategy, node: NodeRules, namespace: NamespaceRules | None, now_s: float
    ) -> Closed | None:
        """Return the schedule that keeps a move from beginning; that which opens last.

        Without a namespace the question is about the node, whatever its pods say.
        """
        found = []
        for by, schedule in self._schedules(strategy, node, namespace):
            opening = next_opening(schedule, now_s)
            if opening is not None:
                found.append(Closed(by, opening))
        return max(found, key=lambda closed: closed.opening[1], default=None)

    def _schedules(
        self, strategy: Strategy, node: NodeRules, namespace: NamespaceRules | None
    ) -> Sequence[tuple[str, Schedule]]:
        config = self.config
        if strategy is Strategy.NODE_MAINTENANCE:
            return ((Strategy.NODE_MAINTENANCE.value, config.maintenance.schedule),)
        own = config.schedules.get(strategy)
        general = (GENERAL, config.schedule) if own is None else (strategy.value, own)
        pods = namespace or self._of_no_namespace
        return general, (node.words, node.schedule), (pods.words, pods.schedule)


def _decided(
    config: RebalancerConfiguration,
    strategy: Strategy,
    node: NodeRules,
    namespace: NamespaceRules | None,
) -> Decided:
    said = []
    if node.pool is not None and strategy in node.pool.modes:
        said.append(Decided(mode=node.pool.modes[strategy], by=node.words))
    rule = namespace.rule if namespace is not None else None
    if namespace is not None and rule is not None and strategy in rule.modes:
        said.append(Decided(mode=rule.modes[strategy], by=namespace.words))
    if not said:
        return Decided(mode=config.mode_of(strategy), by=GENERAL)
    return next((each for each in said if each.mode is Mode.OBSERVE), said[-1])


def _general(config: LoadSettings) -> Thresholds:
    further = tuple(resource.threshold for resource in config.further_resources)
    return Thresholds(config.cpu_threshold, config.memory_threshold, further)


def _thresholds(pool: Pool, config: LoadSettings) -> Thresholds:
    cpu, memory, own = pool.cpu_threshold, pool.memory_threshold, pool.resource_thresholds
    return Thresholds(
        config.cpu_threshold if cpu is None else cpu,
        config.memory_threshold if memory is None else memory,
        tuple(own.get(each.name, each.threshold) for each in config.further_resources),
    )


@lru_cache(maxsize=1024)
def _selector(text: str) -> Selector:
    return parse(text) if text else EVERYTHING
