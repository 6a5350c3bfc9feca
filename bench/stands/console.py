# SPDX-License-Identifier: Apache-2.0
"""A cluster of any size for the console, without a cluster: documents made by dice.

What the pages, their tests and the benchmark show. `HOSTILE` names contain what a tenant could
write to deceive a reader: markup, escapes, text from right to left, and far too much of it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from common import __version__
from common.clock import Clock
from console.data import (
    BreakerRow,
    Ceilings,
    ClusterDocument,
    ExtenderRow,
    Fact,
    Gate,
    HealthDocument,
    LoadMoment,
    Match,
    MigrationRow,
    MigrationsDocument,
    NodeCell,
    NodeDocument,
    NodeState,
    Pause,
    PlanAnswer,
    PlanDocument,
    PlannedMove,
    PlanRole,
    PodOnNode,
    Reason,
    Staying,
    StepTime,
    UnmetGoal,
    UseOfNodes,
    Versions,
    WhyDocument,
    WhyKind,
)

HOSTILE: Final = (
    '<img src=x onerror="document.title=1">',
    "</script><script>document.title='owned'</script>",
    "'\"><svg/onload=document.title=2>",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202edlrow\u202c-\u200bzero",
    "שרת-עברי/حاوية",
    "esc\x1b[31mred\x07\x00end",
    "long-" + "x" * 400,
    "line\nbreak\ttab\r",
    "\U0001f680 rocket",
)
_STEPS: Final = ("BudgetChecked", "Marked", "Acknowledged", "Protected", "Evicted", "Replaced")
_CEILINGS: Final = Ceilings(cpu=80.0, memory=80.0, imbalance=20.0)
_POOL_CEILINGS: Final = {"batch": 95.0, "gpu": 60.0}
"""In percent of CPU."""
_ZONES: Final = ("eu-central-1a", "eu-central-1b", "eu-central-1c")


class MadeUpCluster:
    """Implements `console.data.ConsoleData`; `step` lets time pass."""

    def __init__(
        self, nodes: int, *, clock: Clock, seed: int = 1, hostile: bool = False, hot: float = 0.06
    ) -> None:
        self._rng = random.Random(seed)
        self._clock = clock
        self._hostile = HOSTILE if hostile else ()
        self._number = 0
        self._hot = hot
        self.paused: Pause | None = None
        self.cells = tuple(self._cell(i, nodes) for i in range(nodes))

    def step(self, share: float = 1.0) -> None:
        """Let the load of a share of the nodes change."""
        self._number += 1
        self.cells = tuple(
            self._changed(cell) if self._rng.random() < share else cell for cell in self.cells
        )

    def versions(self) -> Versions:
        number = self._number
        return Versions(cluster=number, plan=number, migrations=number, health=number)

    async def load(self) -> LoadMoment | None:
        return LoadMoment(
            at_s=self._clock.now(),
            names=tuple(cell.name for cell in self.cells),
            cpu=tuple(cell.cpu for cell in self.cells),
            memory=tuple(cell.memory for cell in self.cells),
        )

    async def cluster(self) -> ClusterDocument | None:
        return ClusterDocument(
            at_s=self._clock.now(),
            source="metrics-server",
            trouble="",
            ceilings=_CEILINGS,
            evictions=len(self._moves()),
            nodes=self.cells,
        )

    async def node(self, name: str) -> NodeDocument | None:
        cell = next((cell for cell in self.cells if cell.name == name), None)
        if cell is None:
            return None
        return NodeDocument(
            at_s=self._clock.now(),
            cell=cell,
            ceilings=_CEILINGS,
            cpu_milli=16_000.0,
            memory_bytes=64.0 * (1 << 30),
            created_s=self._clock.now() - 86_400 * 12,
            taints=("dedicated=batch:NoSchedule", *self._hostile[:2]),
            labels={"kubernetes.io/os": "linux", "zone": cell.zone, **self._labels()},
            not_a_source=(),
            not_a_target=(_reason("AboveCeiling", "it is above its ceiling itself"),),
            pods=tuple(self._pod(i, cell) for i in range(max(12, cell.pods))),
            pods_left_out=0,
            moves=self._rows()[:3],
        )

    async def plan(self) -> PlanAnswer:
        moves = self._moves()
        touched = {move.source for move in moves} | {move.target for move in moves}
        goals = tuple(f"{m.source} below 80 % CPU" for m in moves[:4])
        return PlanAnswer(
            plan=PlanDocument(
                plan_id="plan-46617500b90e",
                made_s=self._clock.now() - 4,
                strategies=("ResourceOptimization", "LoadBalancing"),
                goals=goals,
                evictions=len(moves),
                this_cycle=sum(move.this_cycle for move in moves),
                deferred=sum(not move.this_cycle for move in moves),
                lower_bound=max(0, len(moves) - 1),
                bound_words="each node above its ceiling must give at least these pods",
                moves=moves,
                touched=tuple(cell for cell in self.cells if cell.name in touched),
                ceilings=_CEILINGS,
                unmet=self._unmet(),
                staying=self._staying(),
                notes=("One more sample has to agree before node-7 counts as hot.", *self._hostile),
            )
        )

    async def migrations(self) -> MigrationsDocument:
        return MigrationsDocument(rows=self._rows(), left_out=3)

    async def why(self, kind: WhyKind, name: str) -> WhyDocument | None:
        if not name or name.startswith("missing"):
            return None
        return WhyDocument(
            kind=kind,
            name=name,
            answer=f"{name} stays: its PodDisruptionBudget allows no disruption now.",
            good=False,
            facts=(
                Fact(label="Load", text="210m CPU, 512 MiB"),
                Fact(label="Node", text="node-3", kind=WhyKind.NODE, name="node-3"),
                *(Fact(label=text, text=text) for text in self._hostile),
            ),
            gates=(
                Gate(name="PdbExhausted", passed=False, words="PDB web allows 0 disruptions"),
                Gate(name="not_terminating", passed=True, words="it is not being deleted"),
                *(Gate(name=text, passed=False, words=text) for text in self._hostile),
            ),
            changes=("PdbExhausted: let the PDB allow a disruption", *self._hostile),
            moves=self._rows()[:2],
        )

    async def search(self, text: str, limit: int) -> tuple[Match, ...]:
        found = [cell.name for cell in self.cells if text.lower() in cell.name.lower()]
        return tuple(Match(kind=WhyKind.NODE, name=name) for name in found[:limit])

    async def health(self) -> HealthDocument:
        now_s = self._clock.now()
        return HealthDocument(
            at_s=now_s,
            version=__version__,
            installed=True,
            leader="this process leads",
            mode="act",
            acts=self.paused is None,
            strategies=("LoadBalancing", "ResourceOptimization"),
            pause=self.paused,
            extenders=(
                ExtenderRow(
                    name="control-plane-1",
                    alive=True,
                    behind=0,
                    reported_s=now_s - 3,
                    schedulers=("default-scheduler",),
                ),
                *(
                    ExtenderRow(
                        name=text, alive=False, behind=None, reported_s=0.0, schedulers=(text,)
                    )
                    for text in self._hostile
                ),
            ),
            guided="default-scheduler calls the extender",
            breakers=(
                BreakerRow(purpose="load", state="closed", cause=""),
                BreakerRow(purpose="maintenance", state="open", cause="2 of 5 moves went wrong"),
            ),
            source="metrics-server",
            metrics_age_s=7.0,
            trouble="",
            nodes=len(self.cells),
            nodes_unknown=sum(cell.cpu is None for cell in self.cells),
            pods=sum(cell.pods for cell in self.cells),
            open_moves=2,
            finished_moves=40,
            as_planned=39,
            replaced=40,
            ack_lag_s=0.4,
            last_plan_s=now_s - 4,
            notes=self._hostile,
        )

    async def pause(self, why: str, for_s: float | None) -> None:
        self._number += 1
        until_s = None if for_s is None else self._clock.now() + for_s
        self.paused = Pause(by="ada", why=why, until_s=until_s)

    async def resume(self) -> None:
        self._number += 1
        self.paused = None

    def _labels(self) -> dict[str, str]:
        return {text: text for text in self._hostile}

    def _cell(self, i: int, nodes: int) -> NodeCell:
        rng = self._rng
        states = [NodeState.READY] * 47 + [
            NodeState.CORDONED,
            NodeState.MAINTENANCE,
            NodeState.NOT_READY,
        ]
        known = rng.random() > 0.02 or nodes < 20
        state = rng.choice(states) if known and nodes >= 20 else NodeState.READY
        pool = ("general", "memory", "gpu", "batch")[min(3, int(rng.random() ** 2 * 5))]
        name = self._hostile[i] if i < len(self._hostile) else f"node-{i + 1}"
        made = NodeCell(
            name=name,
            pool=self._hostile[i] if i < len(self._hostile) else pool,
            zone=_ZONES[i % 3],
            state=state if known else NodeState.UNKNOWN,
            role=PlanRole.NONE,
            cpu=0.0 if known else None,
            memory=0.0 if known else None,
            cpu_requests=round(rng.uniform(40, 95), 1),
            memory_requests=round(rng.uniform(30, 85), 1),
            cpu_after=None,
            memory_after=None,
            pods=rng.randint(8, 60),
            note="" if known else "no sample of it yet",
            cpu_ceiling=_POOL_CEILINGS.get(pool),
        )
        return self._changed(made, first=True)

    def _changed(self, cell: NodeCell, *, first: bool = False) -> NodeCell:
        if cell.cpu is None or cell.memory is None:
            return cell
        rng = self._rng
        if first:
            hot = rng.random() < self._hot
            cpu = rng.uniform(82, 99) if hot else min(78.0, max(12.0, rng.gauss(56, 11)))
            memory = min(79.0, max(10.0, rng.gauss(48, 12)))
        else:
            cpu = min(100.0, max(1.0, cell.cpu + rng.gauss(0, 1.2)))
            memory = min(100.0, max(1.0, cell.memory + rng.gauss(0, 0.4)))
        ceiling = cell.cpu_ceiling or _CEILINGS.cpu
        gives, takes = cpu > ceiling, cpu < 40 and rng.random() < 0.5
        return msgspec.structs.replace(
            cell,
            cpu=round(cpu, 1),
            memory=round(memory, 1),
            cpu_after=round(min(cpu, ceiling - 6.0) if gives else cpu + 8 * takes, 1),
            memory_after=round(memory, 1),
            role=PlanRole.SOURCE if gives else PlanRole.TARGET if takes else PlanRole.NONE,
        )

    def _moves(self) -> tuple[PlannedMove, ...]:
        sources = [cell for cell in self.cells if cell.role is PlanRole.SOURCE]
        targets = [cell for cell in self.cells if cell.role is PlanRole.TARGET] or list(
            self.cells[:1]
        )
        return tuple(
            PlannedMove(
                pod=f"shop/{self._name(i, 'search')}",
                owner=f"Deployment {self._name(i, 'search')}",
                source=cell.name,
                target=targets[i % len(targets)].name,
                alternatives=tuple(t.name for t in targets[1:3]),
                strategy="ResourceOptimization",
                reason="AboveCeiling",
                words=f"{cell.name} is at {cell.cpu} % CPU (allowed 80 %)",
                chain=i,
                this_cycle=i < 10,
                deferred_by="" if i < 10 else "maxReschedulePods",
                cpu_milli=800.0 + 40 * (i % 20),
                memory_bytes=float(512 << 20),
            )
            for i, cell in enumerate(sources)
        )

    def _name(self, i: int, plain: str) -> str:
        return self._hostile[i] if i < len(self._hostile) else f"{plain}-{i}-7f7fd599c8-49rgb"

    def _unmet(self) -> tuple[UnmetGoal, ...]:
        hostile = tuple(
            UnmetGoal(goal=text, strategy="LoadBalancing", reason=_reason(text, text))
            for text in self._hostile
        )
        return (
            UnmetGoal(
                goal=f"{self.cells[-1].name} below 80 % CPU",
                strategy="ResourceOptimization",
                reason=_reason("NoMovablePod", "no pod on it may be moved"),
            ),
            *hostile,
        )

    def _staying(self) -> tuple[Staying, ...]:
        pods = tuple(f"kube-system/{self._name(i, 'cni')}" for i in range(12))
        return (
            Staying(
                reason=_reason("DaemonSetPod", "its DaemonSet would recreate it on the same node"),
                count=120,
                pods=pods,
            ),
            Staying(
                reason=Reason(name="TooYoung", words="it is 40 s old", for_good=False),
                count=3,
                pods=pods[:3],
            ),
        )

    def _pod(self, i: int, cell: NodeCell) -> PodOnNode:
        refused = (_reason("DaemonSetPod", "its DaemonSet would recreate it on the same node"),)
        return PodOnNode(
            pod=f"shop/{self._name(i, 'web')}",
            owner=f"Deployment {self._name(i, 'web')}",
            cpu_milli=2000.0 / (i + 1),
            memory_bytes=float(900 << 20) / (i + 1),
            cpu=round(12.5 / (i + 1), 1),
            memory=round(1.4 / (i + 1), 1),
            basis="measured",
            priority=0,
            reasons=refused if i % 3 == 1 else (),
            target=self.cells[0].name if i == 0 and cell.role is PlanRole.SOURCE else "",
        )

    def _rows(self) -> tuple[MigrationRow, ...]:
        return tuple(self._row(i) for i in range(14))

    def _row(self, i: int) -> MigrationRow:
        now_s, open_one, failed = self._clock.now(), i < 2, i == 5
        began_s = now_s - (20 if open_one else 60 + 90 * i)
        reached = _STEPS[: 4 + i] if open_one else _STEPS
        uses = UseOfNodes(source_cpu=71.2, source_memory=41.0, target_cpu=63.7, target_memory=38.0)
        first, last = self.cells[0].name, self.cells[-1].name
        return MigrationRow(
            name=f"uid-{i}",
            pod=f"shop/{self._name(i, 'search')}",
            source=first,
            target=last,
            strategy="ResourceOptimization",
            reason="AboveCeiling",
            phase="InProgress" if open_one else "Failed" if failed else "Completed",
            outcome="" if open_one or failed else "AsPlanned" if i != 4 else "Elsewhere",
            words="the pod did not become Ready in time" if failed else self._name(i, "moved"),
            replacement="",
            landed_on="" if open_one else last if i != 4 else first,
            created_s=began_s,
            started_s=began_s,
            evicted_s=None,
            finished_s=None if open_one else began_s + 14,
            due_s=began_s + 300,
            attempts=2 if failed else 0,
            steps=_steps(reached, began_s, done=not open_one and not failed),
            predicted=uses,
            actual=None if open_one or failed else uses,
        )


def _steps(reached: Sequence[str], began_s: float, *, done: bool) -> tuple[StepTime, ...]:
    names = (*reached, "Ready", "CleanedUp") if done else reached
    return tuple(
        StepTime(name=name, status="True", reason="Done", words="", at_s=began_s + 2 * i)
        for i, name in enumerate(names)
    )


def _reason(name: str, words: str) -> Reason:
    return Reason(name=name, words=words, for_good=True)
