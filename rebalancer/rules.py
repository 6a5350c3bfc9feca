# SPDX-License-Identifier: Apache-2.0
"""What holds for the nodes and pods of one cluster at one moment, by their names.

`common.config.rules` says what holds by labels; here it is asked with a snapshot and a time, and
what a rule has against a move is a refusal that names the rule. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from common.api.migrations import MoveReason
from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName, PodRecord
from common.config import (
    FOR_LOAD,
    GENERAL,
    REPAIRS,
    Closed,
    Decided,
    Mode,
    NamespaceRules,
    NodeRules,
    RebalancerConfiguration,
    Rules,
    Strategy,
    next_opening,
)
from rebalancer.pod_groups import PodGroups
from rebalancer.refusals import Reason, Refusal

MOVES_PODS: Final = FOR_LOAD | REPAIRS
"""The strategies that drain no node for maintenance."""
_NO_LABELS: Final[dict[str, str]] = {}


class ClusterRules:
    """Answers what holds; what was asked once is remembered."""

    def __init__(self, config: RebalancerConfiguration, snapshot: Snapshot, now_s: float) -> None:
        self.rules: Final = Rules(config)
        self._snapshot = snapshot
        self._now_s = now_s
        self.pod_groups: Final = PodGroups(snapshot)
        self._nodes: dict[NodeName, NodeRules] = {}
        self._namespaces: dict[str, NamespaceRules] = {}
        self._closed: dict[tuple[Strategy, int, int], Closed | None] = {}
        self._giving: dict[NodeRules, bool] = {}
        self._closed_namespaces: dict[NamespaceRules, Closed | None] = {}

    def of_node(self, name: NodeName) -> NodeRules:
        """Return what holds for a node; one that does not exist has no labels."""
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = self.rules.of_node(self._node_labels(name))
        return found

    def overruled_pools(self, name: NodeName) -> list[NodeRules]:
        """Return the pools that match a node and have no effect, because another one is first."""
        return list(self.rules.matching_node(self._node_labels(name)))[1:]

    def _node_labels(self, name: NodeName) -> Mapping[str, str]:
        view = self._snapshot.nodes.get(name)
        return view.node.labels if view is not None else _NO_LABELS

    def of_namespace(self, name: str) -> NamespaceRules:
        """Return what holds for the pods of a namespace."""
        found = self._namespaces.get(name)
        if found is None:
            labels = self._namespace_labels(name)
            found = self._namespaces[name] = self.rules.of_namespace(name, labels)
        return found

    def overruled_namespaces(self, name: str) -> list[NamespaceRules]:
        """Return the same for the rules of namespaces."""
        return list(self.rules.matching_namespace(name, self._namespace_labels(name)))[1:]

    def _namespace_labels(self, name: str) -> Mapping[str, str]:
        record = self._snapshot.namespaces.get(name)
        return record.labels if record is not None else _NO_LABELS

    def mode_of(self, strategy: Strategy, source: NodeName, namespace: str) -> Decided:
        """Return whether a strategy moves pods of a namespace away from a node."""
        return self.rules.mode_of(strategy, self.of_node(source), self.of_namespace(namespace))

    def closed(self, strategy: Strategy, source: NodeName, namespace: str | None) -> Refusal | None:
        """Return the schedule that keeps a move from beginning now; without a namespace, any."""
        node = self.of_node(source)
        pods = None if namespace is None else self.of_namespace(namespace)
        # There are as many answers as rules, and those are kept by the rules themselves.
        key = (strategy, id(node), id(pods))
        if key not in self._closed:
            self._closed[key] = self.rules.closed(strategy, node, pods, self._now_s)
        found = self._closed[key]
        return None if found is None else Reason.WINDOW_CLOSED.refusal(schedule=found.words)

    def strategy_off(self, strategy: Strategy, source: NodeName, reason: str) -> Refusal | None:
        """Return that a strategy does not move pods of a node.

        A pod that makes room for another one leaves for the strategy of that one's node.
        """
        node = self.of_node(source)
        if strategy in node.enabled_strategies:
            return None
        if reason == MoveReason.MAKES_ROOM and strategy in self.rules.enabled_anywhere():
            return None
        if node.sets("enabled_strategies"):
            return Reason.STRATEGY_OFF.refusal("pool", strategy=strategy, rule=node.words)
        return Reason.STRATEGY_OFF.refusal(strategy=strategy)

    def observed(self, strategy: Strategy, source: NodeName, namespace: str) -> Refusal | None:
        """Return which mode keeps a move from being carried out."""
        found = self.mode_of(strategy, source, namespace)
        if found.mode is Mode.ACT:
            return None
        if found.by == GENERAL:
            return Reason.OBSERVING.refusal(strategy=strategy)
        return Reason.OBSERVING.refusal("rule", strategy=strategy, rule=found.by)

    def held(
        self, strategy: Strategy, reason: str, source: NodeName, namespace: str
    ) -> Refusal | None:
        """Return which rule puts a planned move off.

        The modes of the configuration itself do not: they stop all of a strategy, and the plan is
        shown as if they did not.
        """
        found = self.strategy_off(strategy, source, reason)
        if found is None and self.mode_of(strategy, source, namespace).by != GENERAL:
            found = self.observed(strategy, source, namespace)
        return found or self.closed(strategy, source, namespace)

    def waits(self, strategy: Strategy, source: NodeName) -> bool:
        """Tell whether all moves of a strategy away from a node are put off, whatever the pod.

        As in `held`, the modes of the configuration itself put nothing off.
        """
        pool = self.of_node(source).pool
        observes = pool is not None and pool.modes.get(strategy) is Mode.OBSERVE
        return observes or self.closed(strategy, source, None) is not None

    def closed_namespace(self, name: str) -> Closed | None:
        """Return what the schedule of a namespace waits for, if it is closed."""
        found = self.of_namespace(name)
        if found not in self._closed_namespaces:
            opening = next_opening(found.schedule, self._now_s)
            closed = None if opening is None else Closed(found.words, opening)
            self._closed_namespaces[found] = closed
        return self._closed_namespaces[found]

    def observing_namespace(
        self, pod: PodRecord, strategies: Iterable[Strategy] = MOVES_PODS
    ) -> str:
        """Return the rule by which a pod stays although other pods of its node are moved.

        A namespace that only observes is in the way only where something acts. A pod stays if that
        holds for each of the strategies that its node has.
        """
        namespace = self.of_namespace(pod.namespace)
        if namespace.rule is None:
            return ""
        node = self.of_node(pod.node)
        enabled = set(node.enabled_strategies).intersection(strategies)
        acting = [s for s in enabled if node.mode_of(s).mode is Mode.ACT]
        said = [self.rules.mode_of(strategy, node, namespace).mode for strategy in acting]
        return namespace.words if said and Mode.ACT not in said else ""

    def gives_to_others(self, name: NodeName) -> bool:
        """Tell whether a node makes room for others: not if its pool waits or only observes."""
        node = self.of_node(name)
        if node not in self._giving:
            self._giving[node] = self._gives(node)
        return self._giving[node]

    def _gives(self, node: NodeRules) -> bool:
        if node.pool is None:
            return True
        said = {node.pool.modes.get(s) for s in node.enabled_strategies if s in FOR_LOAD}
        return said != {Mode.OBSERVE} and next_opening(node.schedule, self._now_s) is None
