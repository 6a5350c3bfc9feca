# SPDX-License-Identifier: Apache-2.0
"""The solver's process answers, is limited, and its end is not the end of the planner."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import pytest

from common.config import LeaderElection
from common.kube.leader import Elector
from common.metrics import Metrics
from rebalancer.planner.program import LinearProblem, Program
from rebalancer.solver import SolverProcess
from tests.support.clock import FakeClock
from tests.support.stands.lease_api import DirectClient, MemoryApi


@pytest.fixture
def solver() -> Iterator[SolverProcess]:
    found = SolverProcess()
    yield found
    found.close()


def cover(weights: list[float], needed: float) -> LinearProblem:
    """Return the problem of the fewest weights that cover what is needed."""
    program = Program()
    columns = [program.column(1.0) for _ in weights]
    program.row(list(zip(columns, weights, strict=True)), least=needed)
    return program.problem(nodes=100)


def chosen(solver: SolverProcess, problem: LinearProblem) -> list[int] | None:
    answer = solver(problem)
    values = answer.column_values() if answer is not None else None
    return None if values is None else [i for i, value in enumerate(values) if value > 0.5]


def test_it_answers_one_problem_after_the_other(solver: SolverProcess) -> None:
    assert chosen(solver, cover([3.0, 5.0, 4.0], 9.0)) == [1, 2]
    assert chosen(solver, cover([3.0, 5.0, 4.0], 5.0)) == [1]
    assert chosen(solver, cover([3.0, 5.0, 4.0], 20.0)) is None


def test_it_may_use_only_so_much_memory() -> None:
    small = SolverProcess(memory_bytes=32 << 20)
    assert small(cover([1.0], 1.0)) is None
    small.close()


def test_a_dead_process_has_no_answer_and_the_next_problem_a_new_one(
    solver: SolverProcess,
) -> None:
    assert chosen(solver, cover([1.0], 1.0)) == [0]
    assert solver.pid is not None
    os.kill(solver.pid, signal.SIGKILL)
    assert solver(cover([1.0], 1.0)) is None
    assert chosen(solver, cover([1.0], 1.0)) == [0]


async def test_the_event_loop_goes_on_while_the_solver_works(solver: SolverProcess) -> None:
    """Otherwise the Lease would not be renewed: the loop itself lets the process go on."""
    await asyncio.to_thread(solver, cover([1.0], 1.0))
    assert solver.pid is not None
    os.kill(solver.pid, signal.SIGSTOP)
    asked = asyncio.create_task(asyncio.to_thread(chosen, solver, cover([2.0, 1.0], 2.0)))
    for _ in range(3):
        await asyncio.to_thread(os.getpid)
    assert not asked.done()
    os.kill(solver.pid, signal.SIGCONT)
    assert await asked == [0]


async def test_the_lease_is_renewed_while_the_solver_works(solver: SolverProcess) -> None:
    """For a minute, four times as long as the Lease lasts; the part that plans is not canceled."""
    clock, api = FakeClock(), MemoryApi()
    elector = Elector(
        DirectClient(api),
        LeaderElection(name="helm"),
        namespace="here",
        identity="me",
        clock=clock,
        metrics=Metrics("test"),
        rng=random.Random(1),
    )
    await asyncio.to_thread(solver, cover([1.0], 1.0))
    assert solver.pid is not None
    os.kill(solver.pid, signal.SIGSTOP)

    async def plans() -> list[int] | None:
        return await asyncio.to_thread(chosen, solver, cover([2.0, 1.0], 2.0))

    leading = asyncio.ensure_future(elector.lead(plans))
    try:
        while not elector.is_leader:
            await clock.advance(0.25)
        (lease,) = api.objects.values()
        first = lease["spec"]["renewTime"]
        for _ in range(4 * 60):
            await clock.advance(0.25)
        (lease,) = api.objects.values()
        assert elector.is_leader
        assert lease["spec"]["holderIdentity"] == "me"
        assert lease["spec"]["renewTime"] > first
        assert not leading.done()
    finally:
        os.kill(solver.pid, signal.SIGCONT)
        leading.cancel()
        while not leading.done():
            await clock.advance(0.25)
