# SPDX-License-Identifier: Apache-2.0
"""Remove each entry of each registry in turn, and expect a red test.

A rule that can be taken out without a test turning red is a rule that no one checks. Run
with `make mutants`; names after it limit the run: `python -m tests.mutants CACHED_KINDS`.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

FAILED = 1


@dataclass(frozen=True)
class Registry:
    """A tuple of small rules, and the tests that know them."""

    module: str
    name: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """A registry without one of its entries."""

    registry: Registry
    number: int
    entry: str


REGISTRIES: tuple[Registry, ...] = (
    Registry("extender.shortlist", "ALL_NODES", ("tests/integration/extender/test_shortlist.py",)),
    Registry("common.cache.reader", "CACHED_KINDS", ("tests/unit/deploy/test_roles.py",)),
    Registry("common.fit.predicates", "PREDICATES", ("tests/unit/common/fit/test_predicates.py",)),
    Registry(
        "simulator.scheduler.scores", "SCORES", ("tests/unit/simulator/scheduler/test_scores.py",)
    ),
    Registry(
        "rebalancer.evictability",
        "TEMPLATE_GATES",
        ("tests/unit/rebalancer/evictability/test_gates.py",),
    ),
    Registry(
        "rebalancer.evictability",
        "POD_GATES",
        ("tests/unit/rebalancer/evictability/test_gates.py",),
    ),
    Registry(
        "rebalancer.evictability.removal",
        "REMOVAL_GATES",
        ("tests/unit/rebalancer/evictability/test_removal.py",),
    ),
    Registry(
        "rebalancer.evictability.removal",
        "UNFINISHED_GATES",
        ("tests/unit/rebalancer/evictability/test_removal.py",),
    ),
    Registry(
        "rebalancer.strategies.hygiene",
        "SELECTIONS",
        ("tests/unit/rebalancer/strategies/test_hygiene.py",),
    ),
    Registry(
        "rebalancer.evictability.surge",
        "OBSTACLES",
        ("tests/unit/rebalancer/evictability/test_gates.py",),
    ),
    Registry(
        "rebalancer.planner.constraints",
        "CONSTRAINTS",
        (
            "tests/unit/rebalancer/planner/test_constraints.py",
            "tests/unit/rebalancer/planner/test_chains.py",
            "tests/unit/rebalancer/strategies/test_violations.py",
            "tests/unit/rebalancer/strategies/test_preferred_nodes.py",
        ),
    ),
    Registry(
        "rebalancer.migration.state_machine",
        "RULES",
        ("tests/unit/rebalancer/migration/test_state_machine.py",),
    ),
    Registry("rebalancer.limits", "LIMITS", ("tests/unit/rebalancer/pacing/test_checks.py",)),
    Registry("rebalancer.limits", "LIMITS", ("tests/unit/rebalancer/planner/test_cycle.py",)),
    Registry(
        "rebalancer.pacing.checks", "CHECKS", ("tests/unit/rebalancer/pacing/test_checks.py",)
    ),
    Registry(
        "rebalancer.pacing.checks", "LATE_CHECKS", ("tests/unit/rebalancer/pacing/test_checks.py",)
    ),
    Registry(
        "rebalancer.pacing.checks", "SWITCHES", ("tests/unit/rebalancer/pacing/test_checks.py",)
    ),
    Registry(
        "rebalancer.pacing.signs", "ALARMS", ("tests/unit/rebalancer/pacing/test_breaker.py",)
    ),
    Registry(
        "rebalancer.pacing.extenders",
        "GUIDANCE",
        ("tests/unit/rebalancer/pacing/test_extenders.py",),
    ),
    Registry(
        "rebalancer.planner.cycle", "CHECKS", ("tests/unit/rebalancer/planner/test_cycle.py",)
    ),
    Registry(
        "rebalancer.strategies.participation",
        "RULES",
        ("tests/unit/rebalancer/strategies/test_participation.py",),
    ),
    Registry(
        "rebalancer.strategies.consolidation_survey",
        "CANDIDATE_RULES",
        ("tests/unit/rebalancer/strategies/test_consolidation.py",),
    ),
    Registry(
        "rebalancer.strategies.assessment",
        "STRATEGIES",
        (
            "tests/unit/rebalancer/strategies/test_strategies.py",
            "tests/unit/rebalancer/strategies/test_violations.py",
            "tests/unit/rebalancer/strategies/test_duplicates.py",
            "tests/unit/rebalancer/strategies/test_preferred_nodes.py",
            "tests/unit/rebalancer/strategies/test_hygiene.py",
            "tests/unit/rebalancer/strategies/test_topology_spread.py",
        ),
    ),
)


def mutants(wanted: list[str]) -> Iterator[Mutant]:
    for registry in REGISTRIES:
        if wanted and registry.name not in wanted:
            continue
        entries = getattr(importlib.import_module(registry.module), registry.name)
        for number, entry in enumerate(entries):
            yield Mutant(registry, number, _name(entry))


def survives(mutant: Mutant) -> bool:
    """Tell whether all tests stay green without the entry."""
    registry = mutant.registry
    variable = f"{registry.module}:{registry.name}:{mutant.number}"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.support.mutant"]
    done = subprocess.run(
        [*command, "-p", "no:randomly", *registry.tests],
        env={**os.environ, "EVENKEEL_MUTANT": variable},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, FAILED):
        sys.exit(f"{mutant.entry}: the tests could not run\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def main() -> None:
    found = list(mutants(sys.argv[1:]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        alive = 0
        for mutant, survived in zip(found, pool.map(survives, found), strict=True):
            verdict = "SURVIVED" if survived else "killed"
            print(f"{verdict:8} {mutant.registry.name}: {mutant.entry}", flush=True)
            alive += survived
    print(f"{len(found) - alive} killed, {alive} survived")
    sys.exit(1 if alive or not found else 0)


def _name(entry: object) -> str:
    resource = getattr(entry, "resource", None)
    names = (getattr(resource, "plural", None), getattr(entry, "name", None))
    return str(next(filter(None, names), getattr(entry, "__name__", entry)))


if __name__ == "__main__":
    main()
