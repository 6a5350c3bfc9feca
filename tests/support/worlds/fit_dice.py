# SPDX-License-Identifier: Apache-2.0
"""A cluster for comparing fit, and the words of the generators that make one.

A case is a list of manifests as a person would write them. What no manifest can say is
said by an annotation: what terminates.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from simulator.build import Manifest

T = TypeVar("T")

STATE = "fit.evenkeel.io/state"
OWNER = "fit.evenkeel.io/owner"
TERMINATING = "terminating"
NAMESPACES = ("red", "green", "blue")
ZONES = ("z1", "z2", "z3")
ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
GPU = "example.com/gpu"
FEATURE = "RestartAllContainersOnContainerExits"
DRIVER = "csi.example.com"
KINDS = (
    "nodes",
    "namespaces",
    "pods",
    "pvs",
    "pvcs",
    "storageclasses",
    "csinodes",
    "replicasets",
)
PRIORITIES = {"fit-low": -10, "fit-high": 100}
RUNTIME = "fit-heavy"
OVERHEAD = {"cpu": "600m", "memory": "64Mi"}
APPS = ("web", "db", "job")


class Dice(random.Random):
    """Chance in the words of the generator."""

    def chance(self, share: float) -> bool:
        return self.random() < share

    def some(self, things: Sequence[T], most: int) -> list[T]:
        """Return one up to `most` of the things."""
        return self.sample(things, self.randint(1, min(most, len(things))))


@dataclass(frozen=True)
class ClusterCase:
    """A cluster with the pods to be judged in it."""

    seed: int
    nodes: list[Manifest] = field(default_factory=list)
    namespaces: list[Manifest] = field(default_factory=list)
    pods: list[Manifest] = field(default_factory=list)
    pvs: list[Manifest] = field(default_factory=list)
    pvcs: list[Manifest] = field(default_factory=list)
    storageclasses: list[Manifest] = field(default_factory=list)
    csinodes: list[Manifest] = field(default_factory=list)
    replicasets: list[Manifest] = field(default_factory=list)
    candidates: list[Manifest] = field(default_factory=list)

    def alone(self, name: str) -> ClusterCase:
        """Return the cluster with only one of the pods to be judged."""
        return replace(self, candidates=[c for c in self.candidates if name_of(c) == name])

    @property
    def prefix(self) -> str:
        return f"s{self.seed}"


def name_of(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def readable(case: ClusterCase) -> dict[str, Any]:
    """Return a case as one document, without what is empty."""
    found = {kind: getattr(case, kind) for kind in (*KINDS, "candidates")}
    # A copy in which nothing occurs twice, or YAML would write anchors.
    copied: dict[str, Any] = json.loads(json.dumps(found))
    return {kind: objects for kind, objects in copied.items() if objects}
