# SPDX-License-Identifier: Apache-2.0
"""The extender without one of its rights says which one it misses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.stands.cluster import Cluster
from bench.stands.extender_process import ROLE, ExtenderProcess, extender_with, install
from tests.support.deploy.permissions import Right, shipped, without, words_of

pytestmark = pytest.mark.real

SAID_S = 45.0
SETTINGS = {"usageInterval": "1s", "usageSource": "metrics-server"}
NODES, PODS, MIGRATIONS = ("", "nodes"), ("", "pods"), ("evenkeel.io", "migrations")
LEASES, METRICS = ("coordination.k8s.io", "leases"), "metrics.k8s.io"
# One program notices those of a row at once, or one after the other.
CASES: tuple[tuple[Right, ...], ...] = (
    ((*NODES, "list"), (*PODS, "list"), (*MIGRATIONS, "list")),
    ((*NODES, "watch"), (*PODS, "watch"), (*MIGRATIONS, "watch")),
    ((METRICS, "nodes", "list"), (*LEASES, "list"), (*LEASES, "create")),
    ((METRICS, "pods", "list"), (*LEASES, "patch")),
)
AT_THE_END: Right = (*LEASES, "delete")


async def test_each_missing_right_is_named_by_a_clear_error(
    cluster: Cluster, tmp_path: Path
) -> None:
    await install(cluster)
    await cluster.add_nodes(1)
    silent = {}
    for number, case in enumerate(CASES):
        unsaid = await _unsaid(cluster, tmp_path / f"case-{number}", case)
        if unsaid:
            silent[number] = unsaid
    assert not silent, f"no one was told: {silent}"


async def test_a_lease_that_cannot_be_taken_along_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    await install(cluster)
    assert await _unsaid(cluster, tmp_path / "case", (AT_THE_END,)) == []


def test_every_right_of_the_extender_is_taken_away_once() -> None:
    roles = [d for d in yaml.safe_load_all(ROLE.read_text()) if d and "rules" in d]
    taken = {right for case in CASES for right in case} | {AT_THE_END}
    assert set(shipped(roles)) == taken


async def _unsaid(cluster: Cluster, folder: Path, missing: tuple[Right, ...]) -> list[Right]:
    """Run the program without some rights; return those that it missed in silence."""
    roles, user = without(missing, [ROLE], folder), f"extender-{folder.name}"
    await cluster.bind(user, *roles)
    kubeconfig = await cluster.kubeconfig_of(user=user)
    unsaid = list(missing)

    def all_said() -> bool:
        told = extender.log.read_text().replace("\\", "").replace('"', "")
        unsaid[:] = [right for right in unsaid if words_of(right) not in told]
        return not unsaid or unsaid == [AT_THE_END]

    async with extender_with(kubeconfig, folder, settings=SETTINGS) as extender:
        if AT_THE_END in missing:
            await cluster.wait(extender.is_ready, SAID_S, "the extender is ready")
            await cluster.wait(lambda: _has_a_lease(extender), SAID_S, "it has a Lease")
        await cluster.wait(all_said, SAID_S, "it says what it misses")
    all_said()
    return unsaid


async def _has_a_lease(extender: ExtenderProcess) -> bool:
    return (await extender.metrics()).total("heartbeats_total", result="written") > 0
