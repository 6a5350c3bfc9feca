"""What exists in every cluster before anybody has made anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from common.kube.resources import NAMESPACES, PRIORITYCLASSES, Resource
from simulator import build
from simulator.api.storage import Json

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_CRITICAL: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def first_objects() -> Iterator[tuple[Resource, Json]]:
    """Return the objects to begin with."""
    for name in _NAMESPACES:
        yield NAMESPACES, build.namespace(name)
    for name, value in _CRITICAL.items():
        metadata = {"name": name}
        yield PRIORITYCLASSES, {"metadata": metadata, "value": value}
