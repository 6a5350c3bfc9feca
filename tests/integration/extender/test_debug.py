# SPDX-License-Identifier: Apache-2.0
"""`/debug/nodes`: what the extender believes, for people and for programs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from common.http_server import address_of, listen, serving
from extender.debug import Charge, NodeRow, nodes_page
from extender.intents import IntentRow
from simulator import build
from tests.support.http import plain_http
from tests.support.stands.extender import Extender, eventually, guided, maintain, plan
from tests.support.stands.simulated_cluster import cluster_of, pods_of, until
from tests.support.worlds.migrations import definition

NAMES = ("node-0", "node-1", "node-2")


async def knows_all(service: Extender) -> bool:
    rows = [await service.node(name) for name in NAMES]
    known = all(row and row["unknown"] is None for row in rows)
    return known and rows[1]["maintenance"] and rows[0]["use"] > 1 and bool(await service.intents())


async def test_the_page_says_what_is_believed_and_why(tmp_path: Path) -> None:
    hot = build.pod("hot", node="node-0", cpu="100m", usage_cpu="7")
    async with cluster_of(3, definition(), hot) as cluster, guided(cluster, tmp_path) as service:
        cluster.create([build.deployment("web", 1)])
        await until(
            cluster, lambda: [p for p in pods_of(cluster, "web") if "nodeName" in p["spec"]]
        )
        [pod] = pods_of(cluster, "web")
        target = next(n for n in NAMES[1:] if n != pod["spec"]["nodeName"])
        plan(cluster, pod, target)
        maintain(cluster, "node-1", on=True)
        await eventually(partial(knows_all, service), "everything is known")
        text = await service.get("/debug/nodes")
        page = (await service.get("/debug/nodes", Accept="application/json")).json()
    assert text.headers["content-type"].startswith("text/plain")
    nodes, intents = text.text.split("\n\n")
    head, first, *others = nodes.splitlines()
    assert head.split() == ["NODE", "CPU", "MEMORY", "USE", "REQUESTED", "SCORE", "WHY"]
    assert first.split()[0] == "node-0"
    assert "overloaded: its fuller resource is at 1" in first
    [maintained] = [line for line in others if line.startswith("node-1")]
    assert "under maintenance: rejected" in maintained
    assert pod["metadata"]["name"] in intents
    assert {row["node"] for row in page["nodes"]} == set(NAMES)
    assert page["nodes"][0]["score"] == 0
    [intent] = page["intents"]
    assert (intent["source"], intent["target"]) == (pod["spec"]["nodeName"], target)
    held = {row["node"]: row["held"]["pods"] for row in page["nodes"]}
    assert held[target] == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_the_page_is_only_read(method: str, tmp_path: Path) -> None:
    async with cluster_of(1, definition()) as cluster, guided(cluster, tmp_path) as service:
        async with plain_http(service.health_url) as http:
            answer = await http.request(method, "/debug/nodes")
            assert answer.status_code == 405
            # What kube-scheduler asks is on a port of its own, and pages are not there.
            assert (await http.post("/filter")).status_code == 404
        async with plain_http(service.url) as http:
            assert (await http.request("GET", "/debug/nodes")).status_code == 404


FREE = NodeRow(node="b", unknown=None, cpu_percent=12.4, mem_percent=3.0, use=0.155, score=8)
FULL = NodeRow(node="a", unknown=None, cpu_percent=99.6, mem_percent=3.0, use=1.2, score=0)
BLANK = NodeRow(node="c", unknown="NoSample", assumed=Charge(2, 200.0, 0.0), why="load unknown")
MOVE = IntentRow(
    migration="m",
    pod="shop/web-1",
    source="a",  # type: ignore[arg-type]  # a name is a name
    target="b",  # type: ignore[arg-type]
    alternatives=(),
    state="open",
    holder="",  # type: ignore[arg-type]
    node="",  # type: ignore[arg-type]
    deadline_s=0.0,
)


async def shown(path: str, nodes: list[NodeRow], intents: list[IntentRow], **headers: str) -> Any:
    app = Starlette(routes=[Route("/debug/nodes", nodes_page(lambda: nodes, lambda: intents))])
    listener = await listen("127.0.0.1", 0)
    url = f"http://{address_of(listener)}"
    async with serving(app, listener), plain_http(url) as http:
        return await http.get(path, headers=headers)


async def test_a_table_has_the_fullest_node_first_and_unknown_ones_last() -> None:
    answer = await shown("/debug/nodes", [BLANK, FREE, FULL], [MOVE])
    assert answer.text == (
        "NODE  CPU   MEMORY  USE   REQUESTED  SCORE  WHY\n"
        "a     100%  3%      120%  ?          0\n"
        "b     12%   3%      16%   ?          8\n"
        "c     ?     ?       ?     ?          5      load unknown\n"
        "\n"
        "INTENT  POD         FROM  TO  STATE  NODE\n"
        "m       shop/web-1  a     b   open   -\n"
    )
    assert answer.headers["cache-control"] == "no-store"


async def test_before_anything_is_known_the_page_says_so() -> None:
    assert (await shown("/debug/nodes", [], [])).text == "no node is known yet\n"
    assert (await shown("/debug/nodes?output=json", [], [])).json() == {"nodes": [], "intents": []}


@pytest.mark.parametrize(
    ("path", "accept", "as_json"),
    [
        ("/debug/nodes", "*/*", False),
        ("/debug/nodes", "application/json", True),
        ("/debug/nodes", "text/html,application/json;q=0.9", False),
        ("/debug/nodes?output=json", "text/html", True),
        ("/debug/nodes?output=text", "application/json", False),
    ],
)
async def test_the_form_is_what_was_asked_for(path: str, accept: str, *, as_json: bool) -> None:
    answer = await shown(path, [FREE], [], accept=accept)
    assert answer.headers["content-type"].startswith("application/json") is as_json
