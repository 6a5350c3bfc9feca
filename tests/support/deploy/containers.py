# SPDX-License-Identifier: Apache-2.0
"""The containers of a pod that run for its whole life: the ordinary ones and native sidecars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def lasting(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return sidecars and containers in the order in which the kubelet starts them."""
    sidecars = [c for c in spec.get("initContainers", ()) if c.get("restartPolicy") == "Always"]
    return [*sidecars, *spec["containers"]]
