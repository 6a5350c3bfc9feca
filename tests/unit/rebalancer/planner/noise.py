# SPDX-License-Identifier: Apache-2.0
"""A cluster after a plan, as the next sample may see it: nearly as predicted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from common.api.contract import PREDICTED_USE
from common.api.migrations import Migration, PodRef
from common.cluster.records import NodeName
from rebalancer.launcher import predicted_use
from rebalancer.planner import Level, Plan
from tests.support.worlds.migrations import START, migration, spec_of
from tests.support.worlds.planner import PlannerWorld


def carried_out(world: PlannerWorld, plan: Plan) -> PlannerWorld:
    """Return the cluster after a plan, with the Migrations that tell of it."""
    later = world.after(plan)
    after = {node.name: node.after for node in plan.nodes}
    for made in migrations_of(plan, after):
        later.state.migrations.upsert(made)
    return later


def migrations_of(plan: Plan, after: Mapping[NodeName, Level], minutes: int = 0) -> list[Migration]:
    """Return what was written down for a plan so many minutes after the beginning."""
    found = []
    for move in plan.moves:
        namespace, name = move.pod.split("/")
        pod = PodRef(namespace=namespace, name=name, uid=move.uid)
        spec = spec_of(pod=pod, source=move.source, target=move.target, alternatives=())
        made = migration(spec, created=START + timedelta(minutes=minutes))
        text = msgspec.json.encode(predicted_use(move, after)).decode()
        made.metadata.annotations = {PREDICTED_USE: text}
        found.append(made)
    return found


def shift(world: PlannerWorld, node: str, points: float) -> None:
    """Let a node use so many points more or less than it does."""
    pods = [key for key, given in world.made_pods.items() if given["node"] == node]
    keys = [f"default/{name}" for name in pods]
    size = world.made_nodes[node]["size"]
    for axis, whole in (("cpu_milli", 10_000.0), ("mem_bytes", 10_000.0 * 1024**2)):
        used = sum(getattr(world.usage[key], axis) for key in keys)
        if not used:
            continue
        factor = 1.0 + points / 100.0 * size * whole / used
        for key in keys:
            amount = getattr(world.usage[key], axis) * factor
            world.usage[key] = msgspec.structs.replace(world.usage[key], **{axis: amount})
