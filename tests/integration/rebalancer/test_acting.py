# SPDX-License-Identifier: Apache-2.0
"""No one acts by accident: acting is said, and two never lead, wherever they are started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.cli import NOT_UNDERSTOOD, StartError
from common.config import Mode, RebalancerConfiguration
from common.kube.resources import LEASES, NAMESPACES
from common.kube.timestamps import micro_time
from rebalancer.main import RebalancerOptions, run
from simulator import build
from tests.support.http import fetch
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.extender import eventually
from tests.support.stands.loop_programs import REBALANCER, figure
from tests.support.stands.warm_python import run_program

HOT = build.deployment("web", 8, cpu="100m", usage_cpu="1000m")
"""On one node two too many."""
ON_ONE = {"web": ["node-0"] * 8}
NAME = "evenkeel-rebalancer"
WAITS = {key: value for key, value in REBALANCER["leaderElection"].items() if key != "namespace"}
AT_A_DESK: dict[str, Any] = {"leaderElection": WAITS}
"""Nothing says where the Lease is."""


async def page(health: str, path: str) -> str:
    return (await fetch(f"{health}{path}")).text


async def planned(health: str, evictions: int) -> None:
    async def told() -> bool:
        return await figure(health, "plan_evictions") == evictions

    await eventually(told, f"{evictions} evictions are planned", patience_s=60.0)


def holder(loop: Loop, namespace: str) -> str:
    found = loop.store.find(LEASES, NAME, namespace)
    return str(found["spec"].get("holderIdentity", "")) if found is not None else ""


async def test_a_rebalancer_that_no_one_told_to_act_moves_nothing(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, HOT, places=ON_ONE) as loop:
        async with loop.rebalancer(mode=None) as health:
            await planned(health, 2)
            await loop.cycles(health, 5)
            assert await figure(health, "leader") == 1
            assert "its mode is observe" in await page(health, "/debug/plan")
        assert (loop.migrations(), loop.witness.evicted) == ([], [])


async def test_the_flag_acts_and_a_change_of_the_file_does_not_take_it_back(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path, HOT, places=ON_ONE) as loop:
        file = loop.configured(mode=None)
        async with loop.rebalancer(file, mode=None, flags={"mode": Mode.ACT}) as health:
            await loop.until(loop.migrations, "it acts")
            loop.configured(mode=None, minGain=1.5)
            await loop.until(lambda: len(loop.on("node-0")) == 6, "it still acts")
            assert await figure(health, "config_refused") == 0
    assert loop.outcomes() == ["AsPlanned"] * 2


async def test_the_flag_observes_though_the_file_acts(tmp_path: Path) -> None:
    modes = {"ResourceOptimization": "act"}
    async with closed_loop(tmp_path, HOT, places=ON_ONE) as loop:
        async with loop.rebalancer(modes=modes, flags={"mode": Mode.OBSERVE}) as health:
            await planned(health, 2)
            await loop.cycles(health, 5)
        assert (loop.migrations(), loop.witness.evicted) == ([], [])


async def test_one_at_a_desk_stands_by_beside_the_installed_one_and_says_who_leads(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        loop.store.create(NAMESPACES, build.namespace("evenkeel"))
        async with (
            loop.rebalancer(flags={"namespace": "evenkeel"}) as installed,
            loop.rebalancer(**AT_A_DESK) as desk,
        ):
            await loop.until(lambda: holder(loop, "evenkeel"), "one leads")
            leader = holder(loop, "evenkeel")

            async def told() -> bool:
                return await figure(desk, "lease_holder", holder=leader) == 1

            await eventually(told, "the second one says who leads", patience_s=60.0)
            assert (await figure(installed, "leader"), await figure(desk, "leader")) == (1, 0)
            said = f"this process stands by; {leader} leads"
            assert f"[i]leader: {said}" in await page(desk, "/readyz?verbose")
            assert said in await page(desk, "/debug/plan")
            assert "[i]leader: this process leads" in await page(installed, "/readyz?verbose")


async def test_one_at_a_desk_refuses_to_lead_beside_a_leader_elsewhere(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        loop.store.create(NAMESPACES, build.namespace("evenkeel"))
        async with loop.rebalancer():
            await loop.until(lambda: holder(loop, "default"), "one leads")
            with pytest.raises(StartError, match="add --namespace default to stand by"):
                async with loop.rebalancer(**AT_A_DESK):
                    pass
            assert not holder(loop, "evenkeel")


LEFT: dict[str, dict[str, Any]] = {
    "released": {"holderIdentity": ""},
    "forsaken": {"holderIdentity": "old", "renewTime": "2020-01-01T00:00:00.000000Z"},
    "never-renewed": {"holderIdentity": "old"},
}


@pytest.mark.parametrize("spec", LEFT.values(), ids=LEFT)
async def test_a_lease_that_was_left_behind_elsewhere_stops_no_one(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    async with closed_loop(tmp_path) as loop:
        loop.store.create(NAMESPACES, build.namespace("evenkeel"))
        loop.store.create(LEASES, lease("default", **spec))
        async with loop.rebalancer(**AT_A_DESK):
            await loop.until(lambda: holder(loop, "evenkeel"), "it leads")


async def test_a_lease_of_a_tenant_does_not_stop_one_that_was_told_its_namespace(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        loop.store.create(NAMESPACES, build.namespace("tenant"))
        renewed = micro_time(loop.clock.now())
        loop.store.create(LEASES, lease("tenant", holderIdentity="me", renewTime=renewed))
        async with loop.rebalancer():
            await loop.until(lambda: holder(loop, "default"), "it leads")


async def test_a_lease_in_a_namespace_that_does_not_exist_is_not_waited_for(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        config = RebalancerConfiguration.model_validate({**REBALANCER, **AT_A_DESK})
        options = RebalancerOptions(kubeconfig=str(loop.kubeconfig))
        with pytest.raises(ExceptionGroup) as caught:
            await run(config, options, clock=loop.clock, announce=lambda **_: None)
        words = str(caught.value.exceptions[0])
        assert "namespace evenkeel does not exist" in words
        assert "--namespace" in words
        async with loop.rebalancer(dry_run=True, **AT_A_DESK) as health:
            await loop.cycles(health, 1)


async def test_output_is_for_one_plan() -> None:
    ended = await run_program("rebalancer", "--output", "json")
    assert ended.code == NOT_UNDERSTOOD
    assert "--once" in ended.err


def lease(namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": spec,
    }
