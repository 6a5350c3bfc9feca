# SPDX-License-Identifier: Apache-2.0
"""Quantities inside objects: read as string or number, stored as string."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from common.cluster import quantities as quantity
from simulator.api.errors import BadRequest, Cause, wrong
from simulator.api.storage import Json

_FORM: Final = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"


def tidy(resources: Any, kind: str) -> None:
    """Convert the quantities of a resource list to strings; reject invalid ones."""
    if not isinstance(resources, dict):
        return
    for name, amount in resources.items():
        if type(amount) is not str:
            resources[name] = amount = str(amount)
        try:
            quantity.whole(amount)
        except quantity.QuantityError:
            message = (
                f'{kind} in version "v1" cannot be handled as a {kind}: quantities must match '
            )
            raise BadRequest(f"{message}the regular expression '{_FORM}'") from None


def negative(resources: Json | None, path: str) -> Iterator[Cause]:
    """Return which quantities are negative."""
    for name, amount in (resources or {}).items():
        if quantity.exact_milli(amount) < 0:
            yield wrong(f"{path}[{name}]", amount, "must be greater than or equal to 0")


def above_limits(requirements: Json, path: str) -> Iterator[Cause]:
    """Return which requests exceed their limits, or differ where they must not."""
    requests, limits = requirements.get("requests") or {}, requirements.get("limits") or {}
    for name, limit in limits.items():
        request = requests.get(name)
        if request is None:
            continue
        over = quantity.exact_milli(request) - quantity.exact_milli(limit)
        if over > 0 and may_overcommit(name):
            why = f"must be less than or equal to {name} limit of {limit}"
            yield wrong(f"{path}.requests", request, why)
        elif over and not may_overcommit(name):
            yield wrong(f"{path}.requests", request, f"must be equal to {name} limit of {limit}")


def may_overcommit(name: str) -> bool:
    """Return whether a resource may be overcommitted."""
    native = "/" not in name or name.startswith("kubernetes.io/")
    return native and not name.startswith("hugepages-")
