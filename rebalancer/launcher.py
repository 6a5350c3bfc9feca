# SPDX-License-Identifier: Apache-2.0
"""From chains of a plan to the Migrations that ask for their moves.

A Migration carries all that the extenders and a later leader need, so that no one has to
remember the plan: which controller replaces the pod, what the pod really uses, which pods it
waits for, and in an annotation what both nodes are expected to use afterwards. It is named
by the uid of the pod: the API server refuses a second one for the same pod, and that is fine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import structlog

from common.api.contract import COMPLETION_INDEX
from common.api.migrations import (
    Amounts,
    ControllerRef,
    MigrationSpec,
    NodeUse,
    PodRef,
    Uses,
    migration_name,
)
from common.clock import Clock
from common.cluster.records import NodeName, Owner, PodRecord
from common.config import RebalancerConfiguration
from common.fit import replacement
from common.load import Belief
from rebalancer.leading import Leadership
from rebalancer.migration.names import replacement_name
from rebalancer.migration.timing import deadline_s
from rebalancer.planner import Level, Move, Plan
from rebalancer.planner.plan import Chain
from rebalancer.rules import ClusterRules
from rebalancer.store import CreateResult, MigrationStore

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MAX_MESSAGE: Final = 1024
MAX_ALTERNATIVES: Final = 8
"""Both limits are those of the CRD (`deploy/crds/migrations.yaml`)."""
_INDEX: Final = re.compile(r"\d{1,9}")


class MoveLauncher:
    """Creates the Migrations of a plan, as long as this process may act."""

    def __init__(
        self,
        store: MigrationStore,
        config: Callable[[], RebalancerConfiguration],
        leadership: Leadership,
        clock: Clock,
    ) -> None:
        self._store = store
        self._config = config
        self._leadership = leadership
        self._clock = clock

    async def launch(
        self, plan: Plan, chain: Chain, belief: Belief, after: Mapping[NodeName, Level]
    ) -> list[str]:
        """Create Migrations in the order of the chain; return the uids of the pods.

        A move that waits for one that failed is left out.
        """
        launched = []
        for move in chain:
            if not self._may_act(chain):
                break
            result = await self._create(plan, move, belief, after)
            # The later moves of a chain may need the room of this one.
            if result is CreateResult.FAILED:
                break
            if result is CreateResult.CREATED:
                launched.append(str(move.uid))
                log.info(
                    "migration created",
                    plan_id=plan.plan_id,
                    pod=move.pod,
                    node=move.source,
                    target=move.target,
                    why=move.message,
                )
        return launched

    def _may_act(self, chain: Chain) -> bool:
        """Ask again before each move: the answer may have changed during a request."""
        config, snapshot, now_s = self._config(), self._store.state.snapshot(), self._clock.now()
        rules = ClusterRules(config, snapshot, now_s)
        paused = config.paused or snapshot.pause(now_s) is not None
        return self._leadership.leads() and not paused and all(may_begin(m, rules) for m in chain)

    async def _create(
        self, plan: Plan, move: Move, belief: Belief, after: Mapping[NodeName, Level]
    ) -> CreateResult:
        try:
            spec = spec_of(move, plan.plan_id, belief, self._config(), self._clock.now())
            if spec is None:
                return CreateResult.FAILED
            before = belief.snapshot.migrations.get(migration_name(spec.pod.uid))
            return (await self._store.create(spec, predicted_use(move, after), before)).result
        except Exception:  # the moves of other chains begin all the same
            log.exception("migration not created", plan_id=plan.plan_id, pod=move.pod)
            return CreateResult.FAILED


def may_begin(move: Move, rules: ClusterRules) -> bool:
    """Tell whether the rules for its node and its namespace let a move begin now."""
    source, namespace = move.source, move.pod.partition("/")[0]
    acts = rules.observed(move.strategy, source, namespace) is None
    return acts and rules.closed(move.strategy, source, namespace) is None


def spec_of(
    move: Move, plan_id: str, belief: Belief, config: RebalancerConfiguration, now_s: float
) -> MigrationSpec | None:
    """Return what the Migration of a move asks for; None if the pod is gone."""
    snapshot = belief.snapshot
    pod = snapshot.pods.get(move.uid)
    if pod is None:
        return None
    load = belief.load.load_of(pod)
    # What the replacement will request: it may have been resized, or a VPA may decide.
    asked = replacement(pod, snapshot).shape.requests
    others = dict.fromkeys(n for n in move.alternatives if n not in (move.source, move.target))
    return MigrationSpec(
        pod=PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid),
        controller=_ref(pod.owner),
        workload=_ref(snapshot.top_owner(pod)),
        replacement_name="" if pod.owner is not None else replacement_name(pod.name, now_s),
        completion_index=_completion_index(pod),
        source=move.source,
        target=move.target,
        alternatives=tuple(others)[:MAX_ALTERNATIVES],
        strategy=move.strategy.value,
        reason=move.reason,
        message=move.message[:MAX_MESSAGE],
        plan_id=plan_id,
        deadline=datetime.fromtimestamp(deadline_s(pod, config, now_s), UTC),
        load=Amounts(cpu_milli=max(0.0, load.cpu_milli), memory_bytes=max(0.0, load.mem_bytes)),
        requests=Amounts(cpu_milli=float(asked.cpu_milli), memory_bytes=float(asked.mem_bytes)),
        priority=pod.shape.priority,
        needs=tuple(move.needs),
        surge=move.surge,
    )


def predicted_use(move: Move, after: Mapping[NodeName, Level]) -> Uses:
    """Return what both nodes of a move are expected to use once the plan is carried out."""
    return Uses(source=_use(after.get(move.source)), target=_use(after.get(move.target)))


def _use(level: Level | None) -> NodeUse | None:
    # NaN, which JSON does not know, stands for a node that does not say how much it has.
    if level is None or level.cpu != level.cpu or level.memory != level.memory:
        return None
    return NodeUse(
        cpu_percent=round(max(0.0, level.cpu), 2), memory_percent=round(max(0.0, level.memory), 2)
    )


def _ref(owner: Owner | None) -> ControllerRef | None:
    if owner is None:
        return None
    return ControllerRef(
        api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid
    )


def _completion_index(pod: PodRecord) -> int | None:
    text = pod.annotations.get(COMPLETION_INDEX, "")
    of_job = pod.owner is not None and pod.owner.kind == "Job"
    return int(text) if of_job and _INDEX.fullmatch(text) else None
