# SPDX-License-Identifier: Apache-2.0
"""Label selectors inside objects: their validation and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from common.api.selectors import LabelSelector
from common.cluster.selectors import NOTHING, Selector, SelectorError, from_label_selector
from simulator.api.errors import Cause, not_allowed, required, wrong
from simulator.api.metadata import label_causes
from simulator.api.storage import Json

_NEEDS_VALUES: Final = ("In", "NotIn")
_TAKES_NONE: Final = ("Exists", "DoesNotExist")


def selector_of(wire: Json | None) -> Selector:
    """Compile a selector of an object; an invalid one selects nothing."""
    if wire is None:
        return NOTHING
    try:
        return from_label_selector(msgspec.convert(wire, LabelSelector))
    except (SelectorError, msgspec.ValidationError):
        return NOTHING


def selector_causes(selector: Json, path: str) -> Iterator[Cause]:
    """Return what is wrong with a selector (apimachinery/pkg/apis/meta/v1/validation)."""
    yield from label_causes(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values") or ()
        if operator in _NEEDS_VALUES:
            if not values:
                why = "must be specified when `operator` is 'In' or 'NotIn'"
                yield required(f"{at}.values", why)
        elif operator in _TAKES_NONE:
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield not_allowed(f"{at}.values", why)
        else:
            yield wrong(f"{at}.operator", operator, "not a valid selector operator")
