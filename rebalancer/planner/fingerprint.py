"""Names for plans: equal inputs have equal names, on any machine and at any time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from rebalancer.planner.plan import Move
from rebalancer.planner.problem import Demand


def fingerprint_of(demand: Demand) -> str:
    """Return a digest of the nodes, their loads and pods, the budgets, goals and settings."""
    digest = blake2b(digest_size=16)
    for part in _parts(demand):
        digest.update(part.encode())
        digest.update(b"\n")
    return digest.hexdigest()


def plan_id_of(fingerprint: str, moves: Sequence[Move]) -> str:
    """Return the name of a plan."""
    digest = blake2b(fingerprint.encode(), digest_size=6)
    for move in moves:
        digest.update(f"{move.uid}>{move.target}\n".encode())
    return f"plan-{digest.hexdigest()}"


def _parts(demand: Demand) -> Iterator[str]:
    snapshot, load = demand.look.snapshot, demand.look.load.nodes
    for name in sorted(snapshot.nodes):
        found = load[name]
        yield f"{name} {found.cpu_milli!r} {found.mem_bytes!r}"
        yield " ".join(sorted(snapshot.nodes[name].pods))
    for key in sorted(snapshot.budgets):
        yield f"{key} {snapshot.budgets[key].disruptions_allowed}"
    yield repr(demand.assessment.goals)
    yield repr(demand.settings)
