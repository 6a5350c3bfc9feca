# SPDX-License-Identifier: Apache-2.0
"""How long pods endure taints that evict (pkg/controller/tainteviction)."""

from __future__ import annotations

import pytest

from common.api.objects import Taint
from simulator.controllers.node_lifecycle import patience

LOST = Taint("node.kubernetes.io/unreachable", effect="NoExecute")
OTHER = Taint("special", "yes", "NoExecute")


def pod(*tolerations: dict[str, object]) -> dict[str, object]:
    return {"spec": {"tolerations": list(tolerations)}}


def tolerates(key: str, seconds: int | None = None) -> dict[str, object]:
    limit = {"tolerationSeconds": seconds} if seconds is not None else {}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **limit}


@pytest.mark.parametrize(
    ("tolerations", "taints", "expected"),
    [
        ([], [LOST], 0.0),
        ([], [], None),
        ([tolerates(LOST.key, 300)], [LOST], 300.0),
        ([tolerates(LOST.key)], [LOST], None),
        ([tolerates(LOST.key, 300)], [LOST, OTHER], 0.0),
        ([tolerates(LOST.key, 300), tolerates("special", 20)], [LOST, OTHER], 20.0),
        ([tolerates(LOST.key, 300), tolerates("special")], [LOST, OTHER], 300.0),
        ([tolerates(LOST.key, -1)], [LOST], 0.0),
        ([{"operator": "Exists"}], [LOST, OTHER], None),
    ],
)
def test_a_pod_stays_as_long_as_it_tolerates_all_taints(
    tolerations: list[dict[str, object]], taints: list[Taint], expected: float | None
) -> None:
    assert patience(pod(*tolerations), taints) == expected
