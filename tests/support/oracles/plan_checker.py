# SPDX-License-Identifier: Apache-2.0
"""Replays a plan step by step and finds everything that it should not have done.

Independent of the planner: plain arithmetic over the loads, and `common.fit` asked in a world
of its own. A pod that left counts as still there for everybody who does not wait for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from common.api.migrations import Purpose
from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.resources import NOTHING, Resources
from common.fit import Arrive, Candidate, Change, FitIndex, Leave, Terminate, World, replacement
from common.load import NodeLoad
from rebalancer.goals import AtMost, Ceiling, Empty
from rebalancer.planner import Demand, Move, Plan

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
SLACK = 1e-3
"""Points of utilisation that rounding may cost."""

_ALL_OF_IT = Ceiling(100.0, 100.0)

Levels = dict[NodeName, list[float]]
Place = Callable[[NodeName], str]


def faults(demand: Demand, plan: Plan) -> list[str]:
    """Return everything that is wrong with a plan, in words."""
    replay = Replay(demand, plan)
    return [*replay.steps(), *replay.end(), *cycle_faults(demand, plan)]


class Replay:
    """One plan, made move by move."""

    def __init__(self, demand: Demand, plan: Plan) -> None:
        self.demand = demand
        self.plan = plan
        self.snapshot = demand.cluster.snapshot
        self.parts = demand.assessment.participation
        self.emptied = {g.node for g in demand.assessment.goals if isinstance(g, Empty)}
        self.arrived: dict[NodeName, list[Move]] = defaultdict(list)
        self.done: dict[PodUid, Move] = {}
        self.changes: list[Change] = []

    def steps(self) -> Iterator[str]:
        for move in self.plan.moves:
            yield from self.step(move)
            self.make(move)

    def step(self, move: Move) -> Iterator[str]:
        pod = self.snapshot.pods[move.uid]
        if pod.node != move.source or move.source == move.target:
            yield f"{move.pod} is not on {move.source}, or goes nowhere"
        if move.uid in self.done:
            yield f"{move.pod} moves twice"
        if self.demand.judge(pod, self.purpose(move)):
            yield f"{move.pod} may not be moved"
        for uid in move.needs:
            if uid not in self.done or self.done[uid].chain != move.chain:
                yield f"{move.pod} waits for a pod that does not move before it in its chain"
        needs = move.needs
        for target in (move.target, *move.alternatives):
            yield from self.target_faults(move, pod, target, needs)
            needs = ()

    def _leaves_later(self, node: NodeName, move: Move) -> bool:
        """Tell whether a pod of the same chain leaves a node after this move."""
        chain = (m for m in self.plan.moves if m.chain == move.chain and m.uid != move.uid)
        return any(m.source == node and m.uid not in self.done for m in chain)

    def target_faults(
        self, move: Move, pod: PodRecord, target: NodeName, needs: Sequence[PodUid]
    ) -> Iterator[str]:
        refused = (
            self.parts.refuges_refused
            if move.source in self.emptied
            else self.parts.targets_refused
        )
        if target in refused or target in self.emptied:
            yield f"{move.pod} goes to {target}, which takes no pods"
        level = self.level(target, [*self.arrived[target], move], needs)
        ceiling = self.parts.ceilings[target] if self._known(target) else _ALL_OF_IT
        if target == move.target and self._leaves_later(target, move):
            ceiling = ceiling.transient()
        if _above(level, ceiling):
            yield f"{move.pod} brings {target} to {level}, above {ceiling}"
        new, changes = replacement(pod, self.snapshot), [*self.changes, *map(Leave, needs)]
        world = World(self.snapshot, FitIndex()).after(*changes, *_leaving(pod))
        if pod.shape.anti_affinity and not self._fits_anywhere(world, new):
            # The replacement is pending until the original is gone, which repels it so long.
            world = World(self.snapshot, FitIndex()).after(*changes, Leave(pod.uid))
        for rejection in world.rejections(new, target):
            yield f"{move.pod} does not fit on {target}: {rejection.message}"

    def _fits_anywhere(self, world: World, new: Candidate) -> bool:
        """Tell whether kube-scheduler could find a node if there were room on all of them."""
        bare = msgspec.structs.replace(new.shape, requests=NOTHING)
        asked = msgspec.structs.replace(new, shape=bare)
        return any(not list(world.rejections(asked, node)) for node in self.snapshot.nodes)

    def level(
        self, node: NodeName, arrivals: Sequence[Move], gone: Sequence[PodUid]
    ) -> tuple[float, float]:
        load, offered = self._believed(node), self.snapshot.nodes[node].node
        left = [self.done[uid] for uid in gone]
        cpu = load.cpu_milli + sum(m.cpu_milli for m in arrivals) - sum(m.cpu_milli for m in left)
        mem = load.mem_bytes + sum(m.mem_bytes for m in arrivals) - sum(m.mem_bytes for m in left)
        return 100 * cpu / offered.allocatable.cpu_milli, 100 * mem / offered.allocatable.mem_bytes

    def _known(self, node: NodeName) -> bool:
        return self.demand.cluster.load.nodes[node].known

    def _believed(self, node: NodeName) -> Resources | NodeLoad:
        """Return the load of a node; where it is not known, what its pods request.

        Only nodes that are emptied may send pods there, and requests may use all of it.
        """
        if self._known(node):
            return self.demand.cluster.load.nodes[node]
        asked = [pod.shape.requests for pod in self.snapshot.nodes[node].pods.values()]
        return Resources(
            cpu_milli=sum(a.cpu_milli for a in asked), mem_bytes=sum(a.mem_bytes for a in asked)
        )

    def make(self, move: Move) -> None:
        pod = self.snapshot.pods[move.uid]
        self.done[move.uid] = move
        self.arrived[move.target].append(move)
        new = msgspec.structs.replace(
            replacement(pod, self.snapshot), uid=PodUid(f"new-{move.uid}")
        )
        self.changes += [*(_leaving(pod) or (Terminate(pod.uid),)), Arrive(new, move.target)]

    def purpose(self, move: Move) -> Purpose:
        return Purpose.MAINTENANCE if move.source in self.emptied else Purpose.LOAD

    def end(self) -> Iterator[str]:
        """Judge the result: what the plan says of it, the worst node, the replicas."""
        before, after = self.ends()
        # Where load is not known, the planner goes by requests.
        for node in (node for node in self.plan.nodes if not node.unknown):
            said = (node.after.cpu, node.after.memory)
            if any(abs(a - b) > SLACK for a, b in zip(said, after[node.name], strict=True)):
                yield f"{node.name} would be at {after[node.name]}, not at {said}"
        if not self.emptied and self.plan.moves:
            worst, then = (max(map(max, levels.values())) for levels in (before, after))
            if any(isinstance(goal, AtMost) for goal in self.demand.assessment.goals):
                # A node that has too much of something is the worst, however little it uses.
                worst = max(worst, *(max(c.percents) for c in self.parts.ceilings.values()))
            if then > worst + SLACK:
                yield f"the worst node goes from {worst} to {then}"
        yield from self.piled_up()

    def ends(self) -> tuple[Levels, Levels]:
        offered = {n: v.node.allocatable for n, v in self.snapshot.nodes.items()}
        sums = {n: [v.cpu_milli, v.mem_bytes] for n, v in self.demand.cluster.load.nodes.items()}
        before = {
            n: [100 * sums[n][0] / o.cpu_milli, 100 * sums[n][1] / o.mem_bytes]
            for n, o in offered.items()
        }
        for move in self.plan.moves:
            for node, sign in ((move.source, -1), (move.target, +1)):
                sums[node][0] += sign * move.cpu_milli
                sums[node][1] += sign * move.mem_bytes
        after = {
            n: [100 * sums[n][0] / o.cpu_milli, 100 * sums[n][1] / o.mem_bytes]
            for n, o in offered.items()
        }
        return before, after

    def piled_up(self) -> Iterator[str]:
        moved = [m for m in self.plan.moves if m.source not in self.emptied]
        owners = {self.snapshot.pods[m.uid].controller_id for m in moved}
        for owner in sorted(found for found in owners if found is not None):
            pods = [p for p in self.snapshot.by_owner[owner].values() if p.node]
            goes = {m.uid: m.target for m in moved}
            if any(self.plan_moves_for_maintenance(p) for p in pods):
                continue
            for key, place in ((HOST, _host), (ZONE, self._zone)):
                if any(rule.topology_key == key for rule in pods[0].shape.spread):
                    continue  # the user's own constraint decides, which fit has judged
                now = Counter(place(p.node) for p in pods if place(p.node))
                then = Counter(place(goes.get(p.uid, p.node)) for p in pods)
                del then[""]
                most = self._most(pods, now, place)
                if any(count > max(now[name], most) for name, count in then.items()):
                    yield f"replicas of {owner.uid} pile up"

    def _most(self, pods: Sequence[PodRecord], now: Counter[str], place: Place) -> int:
        """Return how many replicas one host or zone may be given."""
        owner, replicas = pods[0].owner, len(pods)
        if owner is not None and owner.kind == "StatefulSet":
            return max(now.values(), default=1)
        nodes = {node for node in self.snapshot.nodes if self._eligible(pods[0], node)}
        domains = len({place(node) for node in nodes | {pod.node for pod in pods}} - {""})
        share = -(-replicas // max(1, domains)) + 1
        return min(share, replicas - 1) if replicas > 1 and domains > 1 else share

    def _eligible(self, pod: PodRecord, node: NodeName) -> bool:
        """Tell whether a replica could run on a node, room aside."""
        parts = self.demand.assessment.participation
        refused = node in parts.targets_refused and node in parts.refuges_refused
        if refused or node in self.emptied:
            return False
        made = replacement(pod, self.snapshot)
        shape = msgspec.structs.replace(made.shape, requests=NOTHING)
        bare = msgspec.structs.replace(made, shape=shape)
        return World(self.snapshot, FitIndex()).after(Leave(pod.uid)).fits(bare, node)

    def plan_moves_for_maintenance(self, pod: PodRecord) -> bool:
        return any(m.uid == pod.uid and m.source in self.emptied for m in self.plan.moves)

    def _zone(self, node: NodeName) -> str:
        return self.snapshot.nodes[node].node.labels.get(ZONE, "")


def cycle_faults(demand: Demand, plan: Plan) -> Iterator[str]:
    """Judge what is to run at once."""
    config, snapshot = demand.cluster.config, demand.cluster.snapshot
    emptied = {g.node for g in demand.assessment.goals if isinstance(g, Empty)}
    now = [m for m in plan.moves if m.this_cycle]
    if len([m for m in now if m.source not in emptied]) > config.max_reschedule_pods:
        yield "more moves than maxReschedulePods"
    for node, count in at_once(now, lambda m: m.source).items():
        if count > (
            config.maintenance_parallelism if node in emptied else config.max_in_flight_per_node
        ):
            yield f"{count} moves at once away from {node}"
    for node, count in at_once(now, lambda m: m.target).items():
        if count > config.max_inbound_per_node:
            yield f"{count} moves at once to {node}"
    for owner, count in at_once([m for m in now if m.owner], lambda m: m.owner).items():
        pod = next(snapshot.pods[m.uid] for m in now if m.owner == owner)
        top = snapshot.top_workload(pod)
        replicas = top.desired if top is not None else len(snapshot.siblings(pod))
        if count > (1 if replicas < 4 else max(2, replicas // 10)):
            yield f"{count} replicas of {owner} at once"
        if count > 1 and owner.startswith("StatefulSet "):
            yield f"{count} pods of {owner} at once"
    yield from _budget_faults(demand, now)
    for chain in {m.chain for m in plan.moves}:
        if len({m.this_cycle for m in plan.moves if m.chain == chain}) > 1:
            yield f"chain {chain} is torn apart"
    if any(bool(m.deferred_by) == m.this_cycle for m in plan.moves):
        yield "a deferred move does not say why, or one of this cycle does"


def at_once(moves: Sequence[Move], key: Callable[[Move], str]) -> dict[str, int]:
    """Count the moves that may be in progress at the same time, by what they have in common.

    A pod that waits until another one is gone does not move at the same time.
    """
    found: dict[str, int] = {}
    awaited: dict[PodUid, set[PodUid]] = {}
    for number, move in enumerate(moves):
        before = awaited[move.uid] = set(move.needs).union(
            *(awaited.get(uid, ()) for uid in move.needs)
        )
        beside = [m for m in moves[:number] if key(m) == key(move) and m.uid not in before]
        found[key(move)] = max(found.get(key(move), 0), len(beside) + 1)
    return found


def _budget_faults(demand: Demand, now: Sequence[Move]) -> Iterator[str]:
    spent: Counter[str] = Counter()
    for move in now:
        spent.update(b.key for b in demand.budgets.matching(demand.cluster.snapshot.pods[move.uid]))
    budgets: Mapping[str, int] = {
        key: b.disruptions_allowed for key, b in demand.cluster.snapshot.budgets.items()
    }
    for key, count in spent.items():
        if count > budgets[key]:
            yield f"{count} evictions at once, PDB {key} allows {budgets[key]}"


def _leaving(pod: PodRecord) -> tuple[Change, ...]:
    if pod.owner is None:
        return ()
    return (Leave(pod.uid),) if pod.owner.kind == "StatefulSet" else (Terminate(pod.uid),)


def _above(level: tuple[float, float], ceiling: Ceiling) -> bool:
    return level[0] > ceiling.cpu_percent + SLACK or level[1] > ceiling.mem_percent + SLACK


def _percent(sums: Sequence[float], offered: Resources) -> list[float]:
    return [100 * sums[0] / offered.cpu_milli, 100 * sums[1] / offered.mem_bytes]


def _host(node: NodeName) -> str:
    return node


__all__ = ("Replay", "cycle_faults", "faults")
