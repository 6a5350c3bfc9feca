# SPDX-License-Identifier: Apache-2.0
"""The initial nodes of the pods of a scenario, so that nodes have the usage that it defines.

Pure: nodes with a target, pods with a usage, and which pod goes where. The largest pods come
first, each to the node that is furthest below its target and has room for its requests;
replicas of one workload share a node only if there is no other. Pods whose requests are far
below their usage go to the hot nodes first: this is how nodes get hot that look empty to a
scheduler. Targets are adjusted a little so that their sum is the usage of the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from common.config import ConfigError
from simulator.rng import Rng
from simulator.scenarios.schema import Level, Scenario

_MOST_OFF: Final = 0.15
_HUNGRY: Final = 5
"""Usage as a multiple of the request."""
_HOT: Final = 1.25
"""Multiple of the average usage of nodes."""


class PlacingError(ValueError):
    """A load that the workloads of a scenario cannot produce."""


@dataclass(slots=True)
class Place:
    """A node with a target usage."""

    name: str
    target_milli: float
    cpu_milli: int
    mem_bytes: int
    pods: int
    used_milli: float = 0.0
    workloads: dict[str, int] = field(default_factory=dict)

    def has_room(self, piece: Piece) -> bool:
        return (
            self.pods > 0
            and self.cpu_milli >= piece.cpu_milli
            and self.mem_bytes >= piece.mem_bytes
        )

    def take(self, piece: Piece) -> None:
        self.used_milli += piece.usage_milli
        self.cpu_milli -= piece.cpu_milli
        self.mem_bytes -= piece.mem_bytes
        self.pods -= 1
        self.workloads[piece.workload] = self.workloads.get(piece.workload, 0) + 1


@dataclass(frozen=True, slots=True)
class Piece:
    """A pod to place: its usage and its requests."""

    key: str
    workload: str
    usage_milli: float
    cpu_milli: int
    mem_bytes: int

    @property
    def hungry(self) -> bool:
        return self.usage_milli > _HUNGRY * self.cpu_milli


def place(pieces: Sequence[Piece], places: Sequence[Place]) -> Mapping[str, str]:
    """Return the node of every pod; raise PlacingError if the load is not possible."""
    _match(pieces, places)
    hot_milli = _HOT * sum(each.target_milli for each in places) / len(places)
    found: dict[str, str] = {}
    for piece in sorted(pieces, key=lambda each: (not each.hungry, -each.usage_milli, each.key)):
        roomy = [each for each in places if each.has_room(piece)]
        if not roomy:
            raise PlacingError(f"no node has room for {piece.key}")
        chosen = min(roomy, key=lambda each: _order(each, piece, hot_milli))
        chosen.take(piece)
        found[piece.key] = chosen.name
    return found


def _order(each: Place, piece: Piece, hot_milli: float) -> tuple[bool, int, bool, float, str]:
    missing = each.target_milli - each.used_milli
    over = missing < piece.usage_milli / 2
    misleads = piece.hungry and each.target_milli > hot_milli
    return over, each.workloads.get(piece.workload, 0), not misleads, -missing, each.name


def _match(pieces: Sequence[Piece], places: Sequence[Place]) -> None:
    used = sum(piece.usage_milli for piece in pieces)
    wanted = sum(each.target_milli for each in places)
    if wanted <= 0 or abs(used / wanted - 1) > _MOST_OFF:
        raise PlacingError(
            f"the workloads use {used / 1000:.1f} CPU, but the load asks for {wanted / 1000:.1f}"
        )
    for each in places:
        each.target_milli *= used / wanted


def check_levels(load: Iterable[Level], nodes: int) -> None:
    """Refuse a load that is given for another number of nodes than there are at the start."""
    given = sum(level.nodes for level in load)
    if given != nodes:
        raise ConfigError(f"load: {given} nodes given, but the pools have {nodes}")


def drawn_levels(scenario: Scenario, names: Sequence[str], rng: Rng) -> dict[str, float]:
    """Return the target CPU utilization of each node, drawn with the seed."""
    check_levels(scenario.load, len(names))
    levels = [level for level in scenario.load for _ in range(level.nodes)]
    drawn = sorted(names, key=lambda name: rng.share("hot", name))
    return {
        name: rng.between(level.least, level.most, "level", name)
        for name, level in zip(drawn, levels, strict=True)
    }
