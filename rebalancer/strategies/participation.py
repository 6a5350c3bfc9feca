# SPDX-License-Identifier: Apache-2.0
"""Which nodes may give pods, take pods, and are compared with others.

`RULES` holds small functions; each returns one named reason against a node and closes some
roles to it. All reasons that apply are listed, so that no node is left out silently.

Rules must be cheap, because they run for every node in every cycle. Whether a node could
give or take anything at all costs more and is found out in `mobility`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Flag, auto
from typing import Final, NamedTuple

from common.api.contract import Unknown, kept_empty, under_maintenance
from common.cache.snapshot import NodeView, Snapshot
from common.cluster.records import NodeName, NodeRecord
from common.config import NodeRules
from rebalancer.goals import Ceiling
from rebalancer.pod_starts import start_failures
from rebalancer.refusals import Reason, Refusal
from rebalancer.rules import ClusterRules
from rebalancer.strategies.base import ClusterView, Participation, Refused
from rebalancer.strategies.mobility import Evictable, Mobility
from rebalancer.strategies.pending_pods import Claims, claims, first_pending, nominations
from rebalancer.strategies.pools import autoscaler_of, pools_of, removal_taint
from rebalancer.strategies.predicted_levels import predictions_that_hold
from rebalancer.strategies.pressure import under_pressure, words

CONTROL_PLANE_LABELS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)

_NOT_READY: Final = Reason.NOT_READY.refusal()
_CORDONED: Final = Reason.CORDONED.refusal()
_CONTROL_PLANE: Final = Reason.CONTROL_PLANE.refusal()
_KEPT_EMPTY: Final = Reason.KEPT_EMPTY.refusal()
_UNDER_MAINTENANCE: Final = Reason.UNDER_MAINTENANCE.refusal()
_NAMED: Final = 5
_INFEASIBLE: Final = "Infeasible"
WHY_UNKNOWN: Final = {
    Unknown.NO_ALLOCATABLE: "it does not report its allocatable CPU or memory",
    Unknown.NO_SAMPLE: "it was never measured",
    Unknown.STALE_SAMPLE: "its last sample is too old",
    Unknown.FUTURE_SAMPLE: "its sample is from the future: some clock is wrong",
    Unknown.ABSURD_SAMPLE: "its sample is not a possible amount",
}


class Role(Flag):
    """What a node can be used for."""

    SOURCE = auto()
    """To give pods for the sake of load."""
    TARGET = auto()
    """To take pods that are moved for load."""
    REFUGE = auto()
    """To take pods from a node under maintenance."""
    SPREAD = auto()
    """To be compared with the other nodes of its pool."""
    FIRST_REFUGE = auto()
    """To take pods from a node under maintenance before others are tried as the last resort."""


TAKING: Final = Role.TARGET | Role.REFUGE
EVERYTHING: Final = TAKING | Role.SOURCE | Role.SPREAD
KEEPS_EMPTY: Final = Role.TARGET | Role.SOURCE | Role.SPREAD | Role.FIRST_REFUGE


class RuleContext(NamedTuple):
    """What the rules need besides the node."""

    cluster: ClusterView
    nominated: dict[NodeName, str]
    """Nodes where room is kept for a pending pod, and the first such pod."""
    claimed: dict[NodeName, str]
    """Nodes that a pending pod could use, and one such pod."""
    failing: Mapping[NodeName, Refusal]
    """Nodes that start no pods."""


class Rule(NamedTuple):
    """One reason against a node, and the roles that it closes."""

    judge: Callable[[NodeView, RuleContext], Refusal | None]
    closes: Role

    @property
    def name(self) -> str:
        return self.judge.__name__


def is_ready(view: NodeView, _: RuleContext) -> Refusal | None:
    return None if view.node.ready else _NOT_READY


def is_schedulable(view: NodeView, _: RuleContext) -> Refusal | None:
    """A cordoned node may still be relieved: it takes nothing, and that is all."""
    return _CORDONED if view.node.unschedulable else None


def is_known(view: NodeView, context: RuleContext) -> Refusal | None:
    load = context.cluster.load.nodes.get(view.node.name)
    why = Unknown.NO_SAMPLE if load is None else load.why
    if why is None:
        return None
    return Reason.UNKNOWN_LOAD.refusal(cause=WHY_UNKNOWN[why])


def says_what_it_has(view: NodeView, context: RuleContext) -> Refusal | None:
    """A drain may use nodes whose load is not known: they take pods by requests.

    Otherwise no node could be emptied while metrics are missing.
    """
    load = context.cluster.load.nodes.get(view.node.name)
    asked = load is not None and load.why is not Unknown.NO_ALLOCATABLE
    return None if asked else is_known(view, context)


def is_known_first(view: NodeView, context: RuleContext) -> Refusal | None:
    """A drain prefers nodes whose load is known, unless hardly any is."""
    return None if context.cluster.load.resting else is_known(view, context)


def is_no_control_plane(view: NodeView, _: RuleContext) -> Refusal | None:
    if any(label in view.node.labels for label in CONTROL_PLANE_LABELS):
        return _CONTROL_PLANE
    return None


def is_not_under_maintenance(view: NodeView, _: RuleContext) -> Refusal | None:
    if under_maintenance(view.node.labels):
        return _UNDER_MAINTENANCE
    return None


def is_not_kept_empty(view: NodeView, _: RuleContext) -> Refusal | None:
    """A drain may use it as the last resort."""
    return _KEPT_EMPTY if kept_empty(view.node.annotations) else None


def is_not_being_removed(view: NodeView, _: RuleContext) -> Refusal | None:
    taint = removal_taint(view.node)
    if not taint:
        return None
    return Reason.BEING_REMOVED.refusal(taint=taint)


def is_old_enough(view: NodeView, context: RuleContext) -> Refusal | None:
    wanted = context.cluster.config.min_node_age
    age_s = context.cluster.now_s - view.node.created_s
    if age_s >= wanted.seconds:
        return None
    return Reason.TOO_YOUNG.refusal("node", age_s=max(0.0, age_s), wanted=wanted)


def pool_gives_pods(view: NodeView, context: RuleContext) -> Refusal | None:
    """A pool that names its strategies, and only drains among them, keeps its pods."""
    node = context.cluster.rules.of_node(view.node.name)
    return None if node.gives_pods else Reason.NO_STRATEGY_FOR_LOAD.refusal(rule=node.words)


def pool_gives_for_load(view: NodeView, context: RuleContext) -> Refusal | None:
    """A pool that names its strategies, and none for load, is not leveled."""
    node = context.cluster.rules.of_node(view.node.name)
    return None if node.gives_for_load else Reason.NO_STRATEGY_FOR_LOAD.refusal(rule=node.words)


def is_not_nominated(view: NodeView, context: RuleContext) -> Refusal | None:
    pod = context.nominated.get(view.node.name)
    if pod is None:
        return None
    return Reason.NOMINATED.refusal(pod=pod)


def is_not_claimed(view: NodeView, context: RuleContext) -> Refusal | None:
    pod = context.claimed.get(view.node.name)
    if pod is None:
        return None
    return Reason.PENDING_POD_FIRST.refusal(pod=pod)


def starts_pods(view: NodeView, context: RuleContext) -> Refusal | None:
    """A drain may use it as the last resort: pods of a tenant must not stop a drain."""
    return context.failing.get(view.node.name)


def has_no_pressure(view: NodeView, context: RuleContext) -> Refusal | None:
    """A drain may use it as the last resort; it may be relieved itself."""
    load, config = context.cluster.load.nodes.get(view.node.name), context.cluster.config
    found = under_pressure(load, config) if load is not None and load.known else ()
    if load is None or not found:
        return None
    said = " and ".join(words(load, dimension, config) for dimension in found)
    return Reason.UNDER_PRESSURE.refusal(pressure=said)


RULES: tuple[Rule, ...] = (
    Rule(is_ready, EVERYTHING),
    Rule(is_schedulable, TAKING | Role.SPREAD),
    Rule(is_known, EVERYTHING & ~Role.REFUGE),
    Rule(says_what_it_has, Role.REFUGE),
    Rule(is_known_first, Role.FIRST_REFUGE),
    Rule(is_no_control_plane, EVERYTHING),
    Rule(is_not_under_maintenance, EVERYTHING),
    Rule(is_not_being_removed, EVERYTHING),
    Rule(is_not_kept_empty, KEEPS_EMPTY),
    Rule(is_old_enough, Role.SPREAD),
    Rule(pool_gives_pods, Role.SOURCE),
    Rule(pool_gives_for_load, Role.SPREAD),
    Rule(is_not_nominated, Role.TARGET | Role.SPREAD),
    Rule(is_not_claimed, Role.TARGET),
    Rule(has_no_pressure, Role.TARGET | Role.SPREAD | Role.FIRST_REFUGE),
    Rule(starts_pods, Role.TARGET | Role.SPREAD | Role.FIRST_REFUGE),
)


def node_verdicts(cluster: ClusterView, name: NodeName) -> tuple[tuple[Rule, Refusal | None], ...]:
    """Return every rule, and what it has against a node."""
    config = cluster.config
    failing = start_failures(
        cluster.snapshot, now_s=cluster.now_s, cooldown_s=config.node_cooldown.seconds
    )
    context = _rule_context(cluster, claims(cluster.world, config.scheduler_names), failing)
    view = cluster.snapshot.nodes[name]
    return tuple((rule, rule.judge(view, context)) for rule in RULES)


def participation(cluster: ClusterView, evictable: Evictable) -> Participation:
    """Return which nodes take part; `evictable` decides whether a pod may be moved for load."""
    config = cluster.config
    found = claims(cluster.world, config.scheduler_names)
    failing = start_failures(
        cluster.snapshot, now_s=cluster.now_s, cooldown_s=config.node_cooldown.seconds
    )
    refused = _refused(_rule_context(cluster, found, failing))
    rules, names = cluster.rules, sorted(cluster.snapshot.nodes)
    pools = pools_of(
        cluster.snapshot.nodes.values(), config.pool_label, lambda name: rules.of_node(name).name
    )
    return Participation(
        sources_refused=refused[Role.SOURCE],
        targets_refused=refused[Role.TARGET],
        refuges_refused=refused[Role.REFUGE],
        spread_refused=refused[Role.SPREAD],
        last_resorts=refused[Role.FIRST_REFUGE],
        pools=pools,
        autoscalers={pool: autoscaler_of(_records(cluster, pools[pool])) for pool in pools},
        ceilings=_ceilings(names, rules),
        held=frozenset(name for name in names if not rules.gives_to_others(name)),
        pool_rules={pool: rules.of_node(pools[pool][0]) for pool in pools},
        predicted=predictions_that_hold(cluster.snapshot.migrations.values(), cluster.load.nodes),
        notes=(*_untried(found.untried), *_failing(failing)),
        states=_resizes(cluster.snapshot),
        pending=first_pending(cluster.pending_times, cluster.snapshot, config, cluster.now_s),
        mobility=Mobility(cluster.world, evictable),
    )


def _ceilings(names: Sequence[NodeName], rules: ClusterRules) -> dict[NodeName, Ceiling]:
    """Return the ceiling of each node; those of one pool share it."""
    kept: dict[NodeRules, Ceiling] = {}
    found = {}
    for name in names:
        node = rules.of_node(name)
        if node not in kept:
            kept[node] = Ceiling(*node.thresholds)
        found[name] = kept[node]
    return found


def _rule_context(
    cluster: ClusterView, found: Claims, failing: Mapping[NodeName, Refusal]
) -> RuleContext:
    pending, now_s = cluster.pending_times, cluster.now_s
    nominated = nominations(cluster.snapshot, cluster.config.scheduler_names)
    pending.note({**found.pods, **nominated}, now_s)
    return RuleContext(
        cluster,
        nominated=pending.kept_nodes(nominated, now_s),
        claimed=pending.kept_nodes(found.pods, now_s),
        failing=failing,
    )


def _records(cluster: ClusterView, names: tuple[NodeName, ...]) -> list[NodeRecord]:
    return [cluster.snapshot.nodes[name].node for name in names]


def _refused(context: RuleContext) -> dict[Role, Refused]:
    found: dict[Role, dict[NodeName, tuple[Refusal, ...]]] = {role: {} for role in Role}
    for view in context.cluster.snapshot.nodes.values():
        for rule in RULES:
            refusal = rule.judge(view, context)
            if refusal is not None:
                for role in rule.closes:
                    found[role][view.node.name] = (
                        *found[role].get(view.node.name, ()),
                        refusal,
                    )
    return dict(found)


def _resizes(snapshot: Snapshot) -> Refused:
    """Return the resizes in place that nodes do not carry out; of very many the first.

    They close nothing: any tenant can ask for a resize that no node has room for.
    """
    found: dict[NodeName, tuple[Refusal, ...]] = {}
    for pod in sorted(snapshot.resizing.values(), key=lambda pod: pod.key):
        known = found.get(pod.node, ())
        if len(known) < _NAMED:
            case = "infeasible" if pod.resize == _INFEASIBLE else ""
            found[pod.node] = (*known, Reason.RESIZE_PENDING.refusal(case, pod=pod.key))
    return found


def _failing(failing: Mapping[NodeName, Refusal]) -> Iterator[str]:
    """Name the nodes; of very many only the first."""
    for name in sorted(failing)[:_NAMED]:
        yield f"{name} takes no pods that are moved for load: {failing[name].message}."
    if len(failing) > _NAMED:
        yield f"{len(failing) - _NAMED} more nodes take no pods that are moved for load."


def _untried(kinds: int) -> tuple[str, ...]:
    if not kinds:
        return ()
    return (f"{kinds} more kinds of pending pods were not tried on the nodes that load moves use",)
