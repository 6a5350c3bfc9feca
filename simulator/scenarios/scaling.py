# SPDX-License-Identifier: Apache-2.0
"""A scenario drawn for another number of nodes.

Pure: a scenario in, a scenario out. What a person sees stays the same: the share of nodes at each
level of load, the pods of a node, the mix of pools and zones, and the size of workloads. What
grows or shrinks is how many nodes, levels and workloads there are. Numbers are rounded so that
what the pods use still agrees with the load; the size of some workloads differs by a replica
where a whole workload would be too much or too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from common.cluster import quantities as quantity
from common.config import ConfigError
from simulator.scenarios.manifests import node_names
from simulator.scenarios.placing import check_levels
from simulator.scenarios.schema import Budget, Level, Pool, Scenario, Workload


def scaled(scenario: Scenario, nodes: int) -> Scenario:
    """Return the scenario for a number of nodes; its own number changes nothing."""
    own = sum(pool.count for pool in scenario.pools)
    if nodes == own:
        return scenario
    counts = _shared(nodes, [pool.count for pool in scenario.pools], "pools")
    pools = tuple(
        pool.model_copy(update={"count": count})
        for pool, count in zip(scenario.pools, counts, strict=True)
    )
    load = _levels(scenario, _present(pools))
    factor = _demand(pools, load) / _demand(scenario.pools, scenario.load)
    workloads = (_pinned(each, scenario.pools, pools) for each in scenario.workloads)
    return scenario.model_copy(
        update={"pools": pools, "load": load, "workloads": _workloads(workloads, factor)}
    )


def _present(pools: Iterable[Pool]) -> int:
    return sum(pool.count for pool in pools if not pool.joins_after)


def _levels(scenario: Scenario, nodes: int) -> tuple[Level, ...]:
    if not scenario.load:
        return ()
    check_levels(scenario.load, _present(scenario.pools))
    counts = _shared(nodes, [level.nodes for level in scenario.load], "levels of load")
    return tuple(
        level.model_copy(update={"nodes": count})
        for level, count in zip(scenario.load, counts, strict=True)
    )


def _shared(total: int, weights: Sequence[int], what: str) -> list[int]:
    """Divide a number in proportion to weights; each gets at least one."""
    if total < len(weights):
        raise ConfigError(f"too few nodes: each of its {len(weights)} {what} needs one")
    exact = [total * weight / sum(weights) for weight in weights]
    found = [max(1, int(each)) for each in exact]
    while sum(found) != total:
        step = 1 if sum(found) < total else -1
        # The one that is furthest from its share; an entry of one node is not taken away.
        open_to = [i for i in range(len(found)) if found[i] + step >= 1]
        found[max(open_to, key=lambda i: step * (exact[i] - found[i]))] += step
    return found


def _demand(pools: Iterable[Pool], load: Sequence[Level]) -> float:
    """Return what the nodes are to use at the start, up to a factor that scaling leaves alone."""
    cpu = sum(
        quantity.milli(pool.cpu) * pool.count for pool in pools if not (load and pool.joins_after)
    )
    if not load:
        return cpu
    used = sum(level.nodes * (level.least + level.most) / 2 for level in load)
    return cpu * used / sum(level.nodes for level in load)


def _workloads(workloads: Iterable[Workload], factor: float) -> tuple[Workload, ...]:
    """Scale the number of pods, the largest pods first, so that smaller ones level it out."""
    known = list(workloads)
    found: dict[int, list[Workload]] = {}
    missing_milli = 0.0
    for place in sorted(range(len(known)), key=lambda i: -_usage_milli(known[i])):
        workload = known[place]
        exact, each_milli = workload.count * workload.replicas * factor, _usage_milli(workload)
        fewer = int(exact)
        more_is_nearer = missing_milli + (exact - fewer) * each_milli > each_milli / 2
        pods = fewer + more_is_nearer
        missing_milli += (exact - pods) * each_milli
        found[place] = list(_resized(workload, pods))
    return tuple(each for place in range(len(known)) for each in found[place])


def _usage_milli(workload: Workload) -> float:
    return quantity.milli(workload.usage.cpu or "1m")


def _resized(workload: Workload, pods: int) -> Iterator[Workload]:
    """Divide pods among workloads of nearly the original size, named as one group."""
    if not pods:
        return
    count = max(1, round(pods / workload.replicas))
    size, larger = divmod(pods, count)
    sizes = [size + (number < larger) for number in range(count)]
    alike = len(list(takewhile(lambda each: each == sizes[0], sizes)))
    name = f"{workload.name}-1" if alike == 1 < count else workload.name
    yield _sized(workload, name, sizes[0], count=alike)
    for number in range(alike, count):
        yield _sized(workload, f"{workload.name}-{number + 1}", sizes[number])


def _sized(workload: Workload, name: str, replicas: int, *, count: int = 1) -> Workload:
    pdb = workload.pdb and _as_strict(workload.pdb, replicas - workload.replicas)
    changed = {"name": name, "count": count, "replicas": replicas, "pdb": pdb}
    return workload.model_copy(update=changed)


def _as_strict(pdb: Budget, more: int) -> Budget:
    """Allow as many disruptions with `more` replicas as before."""
    if not isinstance(pdb.min_available, int):
        return pdb
    return pdb.model_copy(update={"min_available": max(0, pdb.min_available + more)})


def _pinned(workload: Workload, before: Sequence[Pool], after: Sequence[Pool]) -> Workload:
    """Name the nodes of a workload that has its nodes in the file."""
    if not workload.nodes:
        return workload
    names = tuple(name for each in workload.nodes for name in _renamed(each, before, after))
    return workload.model_copy(update={"nodes": names})


def _renamed(name: str, before: Sequence[Pool], after: Sequence[Pool]) -> list[str]:
    """Return the nodes that a node has become, at least one."""
    for old, new in zip(before, after, strict=True):
        names = node_names(old)
        if name in names:
            place, ratio = names.index(name), new.count / old.count
            first = min(int(place * ratio), new.count - 1)
            return node_names(new)[first : max(first + 1, int((place + 1) * ratio))]
    return [name]
