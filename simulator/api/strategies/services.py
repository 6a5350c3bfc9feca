"""Services: kept so that manifests with one can be used; nothing is routed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simulator.api import names
from simulator.api.errors import Cause, required
from simulator.api.kinds import Strategy
from simulator.api.storage import Json
from simulator.api.strategies import shapes

if TYPE_CHECKING:
    from simulator.api.registry import Registry


class ServiceStrategy(Strategy):
    """A service; it never gets an address of its own."""

    returns_deleted = True
    shape = shapes.Service
    field_words = "field label not supported: {}"

    def name_problems(self, name: str) -> Sequence[str]:
        return names.dns_label(name)

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        obj["status"] = {"loadBalancer": {}}

    def validate(self, obj: Json) -> Iterator[Cause]:
        spec = obj["spec"]
        headless = spec["type"] == "ExternalName" or spec.get("clusterIP") == "None"
        if not spec.get("ports") and not headless:
            yield required("spec.ports")
