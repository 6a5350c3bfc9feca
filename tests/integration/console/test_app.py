# SPDX-License-Identifier: Apache-2.0
"""The console over a socket: pages, documents, the stream, and what it never does."""

from __future__ import annotations

import asyncio
import json
import random
import re
import string
from urllib.parse import quote

import pytest

from bench.stands.console import HOSTILE
from common.visible import visible
from console.app import STATIC
from console.security import POLICY
from tests.integration.console.stand import Stand, serving

PAGES = (
    "/",
    "/plan",
    "/migrations",
    "/why",
    "/health",
    "/node?name=node-3",
    "/why?kind=pod&name=a/b",
)
DOCUMENTS = (
    "cluster",
    "history",
    "plan",
    "migrations",
    "health",
    "search?q=node",
    "node?name=node-1",
)


async def test_every_page_and_document_is_served() -> None:
    async with serving() as stand:
        for path in PAGES:
            answer = await stand.client.get(path)
            assert answer.status_code == 200, path
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
        for name in DOCUMENTS:
            answer = await stand.client.get(f"/api/{name}")
            assert (answer.status_code, answer.json() is not None) == (200, True), name


async def test_pages_run_nothing_that_is_not_a_file_of_ours() -> None:
    async with serving(hostile=True) as stand:
        for path in PAGES:
            answer = await stand.client.get(path)
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert not re.search(r"<script(?! type=\"module\" src=\"/static/)", answer.text)
            assert not re.search(r"<[^>]+\s(on\w+|style)=", answer.text)
            assert not re.search(r"(src|href)=\"(?!/|#)", answer.text)
        for word in ("unsafe-inline", "unsafe-eval", "*", "http"):
            assert word not in POLICY


def test_our_modules_name_no_other_host() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix in {".js", ".css"} and "vendor" not in path.parts:
            found = re.findall(r"\w+://[\w./]+", path.read_text())
            assert set(found) <= {"http://www.w3.org/2000/svg"}, path


async def test_static_files_are_revalidated_and_nothing_else_is_reached() -> None:
    async with serving() as stand:
        first = await stand.client.get("/static/console.css")
        assert first.headers["content-type"].startswith("text/css")
        again = await stand.client.get(
            "/static/console.css", headers={"If-None-Match": first.headers["etag"]}
        )
        assert again.status_code == 304
        module = await stand.client.get("/static/js/cluster.js")
        assert module.headers["content-type"].startswith("text/javascript")
        for path in (
            "/static/../app.py",
            "/static/%2e%2e/app.py",
            "/static//etc/passwd",
            "/static/",
        ):
            assert (await stand.client.get(path)).status_code == 404, path


async def test_hostile_names_are_text() -> None:
    async with serving(40, hostile=True) as stand:
        for text in HOSTILE:
            params = {"kind": "pod", "name": f"shop/{text}"}
            page = (await stand.client.get("/why", params=params)).text
            node = (await stand.client.get("/node", params={"name": text})).text
            for shown in (page, node):
                assert "<img src=x" not in shown
                assert "<script>" not in shown
                assert "<svg" not in shown
                assert not set(shown) & set("\x00\x07\x1b\u202e\u200b")
        assert visible("\u202e") in (await stand.client.get("/why", params={"q": HOSTILE[4]})).text


async def test_a_search_without_a_find_says_so() -> None:
    async with serving() as stand:
        answer = await stand.client.get("/why", params={"q": "no-such-thing"})
        assert (answer.status_code, "Nothing has" in answer.text) == (200, True)
        gone = await stand.client.get("/why", params={"kind": "pod", "name": "missing/pod"})
        assert gone.status_code == 404
        assert (await stand.client.get("/api/node?name=gone")).json() is None


def fuzzed(rng: random.Random) -> str:
    path = rng.choice(
        [
            "/",
            "/node",
            "/why",
            "/plan",
            "/api/node",
            "/api/why",
            "/api/search",
            "/api/history",
            "/api/cluster",
            "/static/x",
            "/nothing",
            "//",
            "/api/",
        ]
    )
    keys = ["name", "kind", "q", "node", "number", "cells", "token", "%00", "a[]"]
    values = [
        *map(str, HOSTILE),
        "",
        "pod",
        "node",
        "-1",
        "1e999",
        "9" * 700,
        "%",
        "%ff%fe",
        "\u2028",
        "null",
        "../../etc",
    ]
    noise = "".join(rng.choice(string.printable) for _ in range(rng.randint(0, 12)))
    pairs = [
        f"{rng.choice(keys)}={_quoted(rng, rng.choice([*values, noise]))}"
        for _ in range(rng.randint(0, 4))
    ]
    return f"{path}?{'&'.join(pairs)}"


def _quoted(rng: random.Random, text: str) -> str:
    return quote(text, safe="%" if rng.random() < 0.3 else "")


async def test_fuzzed_queries_never_fail() -> None:
    rng = random.Random(7)
    async with serving(hostile=True) as stand:
        for _ in range(400):
            asked = fuzzed(rng)
            answer = await stand.client.get(asked)
            assert answer.status_code < 500, asked


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
async def test_nothing_but_the_switch_can_be_changed(method: str) -> None:
    async with serving() as stand:
        origin = {"Origin": f"http://{stand.address}"}
        for path in ("/", "/api/cluster", "/static/console.css"):
            answer = await stand.client.request(method, path, headers=origin)
            assert answer.status_code == 405, path


async def stream(stand: Stand, number: int) -> tuple[str, dict[str, object]]:
    """Return the next event about the cluster."""
    async with (
        asyncio.timeout(60),
        stand.client.stream("GET", f"/api/stream?number={number}") as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
                if name == "versions":
                    stand.world.step()
                    await stand.console.feed.poll()
            elif line.startswith("data: ") and name in {"cluster", "reset"}:
                return name, json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended")


async def test_the_stream_tells_what_changes() -> None:
    async with serving() as stand:
        document = (await stand.client.get("/api/cluster")).json()
        name, said = await stream(stand, document["number"])
        assert name == "cluster"
        assert said["number"] == document["number"] + 1
    assert stand.console.feed.viewers == 0


async def test_an_open_stream_does_not_hold_up_the_end_of_the_program() -> None:
    async with serving() as stand:
        opened = asyncio.Event()

        async def follow() -> None:
            async with stand.client.stream("GET", "/api/stream") as answer:
                opened.set()
                async for _ in answer.aiter_bytes():
                    pass

        following = asyncio.create_task(follow())
        await opened.wait()
    async with asyncio.timeout(60):
        await asyncio.gather(following, return_exceptions=True)


async def test_pause_and_resume_are_for_our_own_pages() -> None:
    async with serving() as stand:
        origin = {"Origin": f"http://{stand.address}"}
        body = {"why": "network change", "for_s": 60}
        done = await stand.client.post("/api/pause", json=body, headers=origin)
        assert (done.status_code, done.json()) == (200, {"error": ""})
        assert (await stand.client.get("/api/health")).json()["pause"]["why"] == "network change"
        mistakes: list[object] = [{"why": 3}, {"for_s": -1}, {"unknown": 1}, [], {"why": "x" * 300}]
        for wrong in mistakes:
            refused = await stand.client.post("/api/pause", json=wrong, headers=origin)
            assert refused.status_code == 400, wrong
        assert (await stand.client.post("/api/resume", headers=origin)).status_code == 200
        assert stand.world.paused is None
        assert (await stand.client.post("/api/pause", json=body)).status_code == 403
