# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets (pkg/apis/policy/validation/validation.go, v1.36)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from simulator.api.errors import Cause, unknown_value, wrong
from simulator.api.kind import Strategy
from simulator.api.kinds import shapes
from simulator.api.kinds.selectors import selector_causes
from simulator.api.storage import Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
SYNC_FAILED: Final = "SyncFailed"

_PERCENT: Final = re.compile("[0-9]+%")
_PERCENT_WORDS: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS: Final = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")


class BudgetStrategy(Strategy):
    """A PodDisruptionBudget."""

    generation = True
    unconditional_update = False
    shape = shapes.Budget

    def default(self, obj: Json) -> None:
        obj.setdefault("spec", {})

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        obj["status"] = {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        }

    def validate(self, obj: Json) -> Iterator[Cause]:
        spec = obj["spec"]
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if least is not None and most is not None:
            yield wrong("spec", spec, "minAvailable and maxUnavailable cannot be both set")
        yield from _amount_causes(least, "spec.minAvailable")
        yield from _amount_causes(most, "spec.maxUnavailable")
        if spec.get("selector") is not None:
            yield from selector_causes(spec["selector"], "spec.selector")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in _POLICIES:
            yield unknown_value("spec.unhealthyPodEvictionPolicy", policy, _POLICIES)

    def validate_status(self, obj: Json, old: Json) -> Iterator[Cause]:
        status = obj.get("status", {})
        for key in _COUNTS:
            if status.get(key, 0) < 0:
                yield wrong(f"status.{key}", status[key], "must be greater than or equal to 0")


def _amount_causes(amount: Any, path: str) -> Iterator[Cause]:
    if isinstance(amount, int) and amount < 0:
        yield wrong(path, amount, "must be greater than or equal to 0")
    if isinstance(amount, str):
        if not _PERCENT.fullmatch(amount):
            yield wrong(path, amount, _PERCENT_WORDS)
        elif int(amount[:-1]) > 100:
            yield wrong(path, amount, "must not be greater than 100%")


def with_allowed_condition(status: Json, now: str, *, failure: str = "") -> Json:
    """Return a budget's status with the condition that its number of disruptions implies."""
    allowed = status.get("disruptionsAllowed", 0) > 0
    reason = "SufficientPods" if allowed else "InsufficientPods"
    made = {
        "type": DISRUPTION_ALLOWED,
        "status": "True" if allowed else "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": SYNC_FAILED if failure else reason,
        "message": failure,
    }
    conditions = [dict(each) for each in status.get("conditions") or ()]
    old = next((each for each in conditions if each["type"] == DISRUPTION_ALLOWED), None)
    if old is None:
        return {**status, "conditions": [*conditions, made]}
    if old["status"] == made["status"]:
        made["lastTransitionTime"] = old["lastTransitionTime"]
    kept = [made if each is old else each for each in conditions]
    return {**status, "conditions": kept}
