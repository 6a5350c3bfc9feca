"""Who takes part: which nodes may give pods, take pods, and are compared with others.

`RULES` holds small functions; each has one named reason against a node, and says which
roles it closes to it. All reasons that apply are listed, for a node that is left out
without a word is what people complain about most.

Rules here cost nothing to speak of, for they are put to every node at every look. Whether
a node could give or take anything at all costs more, and stands in `reach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Flag, auto
from typing import Final, NamedTuple

from common.cluster.records import NodeName, NodeRecord
from common.cluster.snapshot import NodeView
from common.contract import Unknown, under_maintenance
from rebalancer.goals import Ceiling
from rebalancer.pod_starts import start_failures
from rebalancer.reasons import Refusal
from rebalancer.strategies.base import Look, Participation, Refused
from rebalancer.strategies.claims import claims, nominations
from rebalancer.strategies.pools import autoscaler_of, pools_of, removal_taint
from rebalancer.strategies.promises import kept_promises
from rebalancer.strategies.reach import Evictable, Reach

CONTROL_PLANE_LABELS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)

_NAMED: Final = 5
_WHY_UNKNOWN: Final = {
    Unknown.NO_ALLOCATABLE: "it does not say how much CPU or memory it has",
    Unknown.NO_SAMPLE: "it was never measured",
    Unknown.STALE_SAMPLE: "its last sample is too old",
    Unknown.FUTURE_SAMPLE: "its sample is from the future: some clock is wrong",
    Unknown.ABSURD_SAMPLE: "its sample is no possible amount",
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


class Scene(NamedTuple):
    """What the rules may look at beside the node."""

    look: Look
    nominated: dict[NodeName, str]
    """Nodes where room is kept for a pending pod, and the first such pod."""
    claimed: dict[NodeName, str]
    """Nodes that a pending pod could use, and one such pod."""
    failing: Mapping[NodeName, Refusal]
    """Nodes that start no pods."""


class Rule(NamedTuple):
    """One reason against a node, and the roles that it closes."""

    judge: Callable[[NodeView, Scene], Refusal | None]
    closes: Role

    @property
    def name(self) -> str:
        return self.judge.__name__


def is_ready(view: NodeView, _: Scene) -> Refusal | None:
    return None if view.node.ready else Refusal("NotReady", "it is not Ready", False)


def is_schedulable(view: NodeView, _: Scene) -> Refusal | None:
    """A cordoned node may still be relieved: it takes nothing, and that is all."""
    return Refusal("Cordoned", "it is cordoned", False) if view.node.unschedulable else None


def is_known(view: NodeView, scene: Scene) -> Refusal | None:
    load = scene.look.load.nodes.get(view.node.name)
    why = Unknown.NO_SAMPLE if load is None else load.why
    if why is None:
        return None
    return Refusal("UnknownLoad", f"its load is not known: {_WHY_UNKNOWN[why]}", False)


def is_known_as_a_refuge(view: NodeView, scene: Scene) -> Refusal | None:
    """A drain prefers nodes that are known; where hardly any is, it goes by estimates.

    Otherwise no node could be emptied while metrics are away.
    """
    load = scene.look.load.nodes.get(view.node.name)
    estimated = load is not None and load.why is not Unknown.NO_ALLOCATABLE
    return None if estimated and scene.look.load.resting else is_known(view, scene)


def is_no_control_plane(view: NodeView, _: Scene) -> Refusal | None:
    if any(label in view.node.labels for label in CONTROL_PLANE_LABELS):
        return Refusal("ControlPlane", "it is a control-plane node")
    return None


def is_not_under_maintenance(view: NodeView, _: Scene) -> Refusal | None:
    if under_maintenance(view.node.labels):
        return Refusal("UnderMaintenance", "it is under maintenance", False)
    return None


def is_not_being_removed(view: NodeView, _: Scene) -> Refusal | None:
    taint = removal_taint(view.node)
    if not taint:
        return None
    return Refusal("BeingRemoved", f"an autoscaler is removing it (taint {taint})", False)


def is_old_enough(view: NodeView, scene: Scene) -> Refusal | None:
    wanted = scene.look.config.min_node_age
    age_s = scene.look.now_s - view.node.created_s
    if age_s >= wanted.seconds:
        return None
    words = f"it is only {max(0.0, age_s):.0f} s old; nodes count from {wanted} on (minNodeAge)"
    return Refusal("TooYoung", words, False)


def is_not_nominated(view: NodeView, scene: Scene) -> Refusal | None:
    pod = scene.nominated.get(view.node.name)
    if pod is None:
        return None
    return Refusal("Nominated", f"the scheduler keeps room there for pod {pod}", False)


def is_not_claimed(view: NodeView, scene: Scene) -> Refusal | None:
    pod = scene.claimed.get(view.node.name)
    if pod is None:
        return None
    return Refusal("PendingPodFirst", f"pod {pod} waits for a node and would fit there", False)


def starts_pods(view: NodeView, scene: Scene) -> Refusal | None:
    """A drain may use it as the last resort: no tenant's pods may stop one."""
    return scene.failing.get(view.node.name)


RULES: tuple[Rule, ...] = (
    Rule(is_ready, EVERYTHING),
    Rule(is_schedulable, TAKING | Role.SPREAD),
    Rule(is_known, EVERYTHING & ~Role.REFUGE),
    Rule(is_known_as_a_refuge, Role.REFUGE),
    Rule(is_no_control_plane, EVERYTHING),
    Rule(is_not_under_maintenance, EVERYTHING),
    Rule(is_not_being_removed, EVERYTHING),
    Rule(is_old_enough, Role.SPREAD),
    Rule(is_not_nominated, Role.TARGET | Role.SPREAD),
    Rule(is_not_claimed, Role.TARGET),
    Rule(starts_pods, Role.TARGET | Role.SPREAD | Role.FIRST_REFUGE),
)


def participation(look: Look, evictable: Evictable) -> Participation:
    """Return who takes part in what; `evictable` tells whether a pod may be moved for load."""
    patience, config, now_s = look.patience, look.config, look.now_s
    found = claims(look.world, config.scheduler_names)
    promised = nominations(look.snapshot, config.scheduler_names)
    patience.look({**found.pods, **promised}, now_s)
    nominated, claimed = patience.first(promised, now_s), patience.first(found.pods, now_s)
    failing = start_failures(
        look.snapshot, now_s=look.now_s, cooldown_s=config.node_cooldown.seconds
    )
    refused = _refused(Scene(look, nominated, claimed, failing))
    pools = pools_of(look.snapshot.nodes.values(), config.pool_label)
    ceiling = Ceiling(config.cpu_threshold, config.memory_threshold)
    return Participation(
        sources_refused=refused[Role.SOURCE],
        targets_refused=refused[Role.TARGET],
        refuges_refused=refused[Role.REFUGE],
        spread_refused=refused[Role.SPREAD],
        last_resorts=refused[Role.FIRST_REFUGE],
        pools=pools,
        autoscalers={pool: autoscaler_of(_records(look, pools[pool])) for pool in pools},
        ceilings=dict.fromkeys(sorted(look.snapshot.nodes), ceiling),
        promises=kept_promises(look.snapshot.migrations.values(), look.load.nodes),
        notes=(*_untried(found.untried), *_failing(failing)),
        reach=Reach(look.world, evictable),
    )


def _records(look: Look, names: tuple[NodeName, ...]) -> list[NodeRecord]:
    return [look.snapshot.nodes[name].node for name in names]


def _refused(scene: Scene) -> dict[Role, Refused]:
    found: dict[Role, dict[NodeName, tuple[Refusal, ...]]] = {role: {} for role in Role}
    for view in scene.look.snapshot.nodes.values():
        for rule in RULES:
            refusal = rule.judge(view, scene)
            if refusal is not None:
                for role in rule.closes:
                    found[role][view.node.name] = (
                        *found[role].get(view.node.name, ()),
                        refusal,
                    )
    return dict(found)


def _failing(failing: Mapping[NodeName, Refusal]) -> Iterator[str]:
    """Name the nodes; of very many only the first."""
    for name in sorted(failing)[:_NAMED]:
        yield f"{name} takes no pods that are moved for load: {failing[name].words}."
    if len(failing) > _NAMED:
        yield f"{len(failing) - _NAMED} more nodes take no pods that are moved for load."


def _untried(kinds: int) -> tuple[str, ...]:
    if not kinds:
        return ()
    return (f"{kinds} more kinds of pending pods were not tried on the nodes that load moves use",)
