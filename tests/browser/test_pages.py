# SPDX-License-Identifier: Apache-2.0
"""The console in a real browser: every page at every size, live, accessible and self-contained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.stands.console import HOSTILE
from console.data import PlanRole
from console.security import new_token
from tests.browser.conftest import Consoles, Watched

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PAGES = ("/", "/node?name=node-3", "/plan", "/migrations", "/why?kind=pod&name=shop/web", "/health")

PAINTED = """() => {
  const canvas = document.querySelector("#now");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0;
  for (let i = 3; i < data.length; i += 4) if (data[i]) painted += 1;
  return painted;
}"""
ROWS = "(rows) => document.querySelectorAll('#nodes tbody tr').length === rows"
HIDDEN = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def serious(watched: Watched) -> list[str]:
    """Return the serious findings of axe-core; it is injected, so that the policy stays on."""
    await watched.page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = await watched.page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)"
    )
    return [
        f"{each['id']}: {node['html'][:120]} ({node['failureSummary'][:160]})"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("nodes", [10, 300, 5000])
async def test_every_page_shows_data_without_errors_and_asks_no_other_host(
    consoles: Consoles, nodes: int
) -> None:
    watched = await consoles.page(await consoles.address(nodes))
    for path in PAGES:
        await watched.open(path)
        wide: int = await watched.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{path} is wider than the screen"
    await watched.open("/")
    shown = await watched.page.inner_text("#figures")
    assert f"{nodes:,}" in shown
    rows = await watched.page.locator("#nodes tbody tr").count()
    assert rows == min(nodes, 25)
    painted: int = await watched.page.evaluate(PAINTED)
    assert painted > 1000
    assert (watched.errors, watched.elsewhere) == ([], [])


@pytest.mark.parametrize(("scheme", "width"), [("light", 1360), ("dark", 1360), ("light", 390)])
async def test_pages_are_accessible(consoles: Consoles, scheme: str, width: int) -> None:
    watched = await consoles.page(await consoles.address(30), scheme=scheme, width=width)
    for path in (*PAGES, "/why?q=node", "/nothing-here"):
        if path == "/nothing-here":
            await watched.page.goto(f"http://{watched.address}{path}")
            watched.errors.clear()  # the browser logs the 404
        else:
            await watched.open(path)
        assert await serious(watched) == [], path
        wide: int = await watched.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, path
    assert watched.errors == []


async def test_changes_appear_without_reloading(consoles: Consoles) -> None:
    address = await consoles.address(12)
    watched, world = await consoles.page(address), consoles.worlds[address]
    await watched.open("/")
    await watched.page.evaluate("window.stays = true")
    for path, selector in (("/", "#nodes tbody"), ("/health", "#cards")):
        await watched.open(path)
        await watched.page.evaluate("window.stays = true")
        before = await watched.page.inner_text(selector)
        if path == "/health":
            await world.pause("for a test", None)
        else:
            world.step()
        await watched.page.wait_for_function(
            "([selector, before]) => document.querySelector(selector).innerText !== before",
            arg=[selector, before],
        )
        assert await watched.page.evaluate("window.stays") is True
    await watched.page.wait_for_selector("#banner:not([hidden])")
    assert "Paused by ada" in await watched.page.inner_text("#banner")
    assert watched.errors == []


MOST_PAINTED = """() => {
  const canvas = document.querySelector("#now"), g = canvas.getContext("2d");
  const data = g.getImageData(0, 0, canvas.width, canvas.height).data, found = {};
  for (let i = 0; i < data.length; i += 4) {
    const color = data.slice(i, i + 3).join();
    if (data[i + 3]) found[color] = (found[color] ?? 0) + 1;
  }
  return Object.entries(found).sort((a, b) => b[1] - a[1])[0][0];
}"""


async def test_nodes_are_counted_and_colored_by_the_ceilings_of_their_pools(
    consoles: Consoles,
) -> None:
    """The same load is above the general ceiling, and far below that of a pool."""
    address = await consoles.address(2)
    watched, world = await consoles.page(address), consoles.worlds[address]
    hot = replace(world.cells[0], cpu=88.0, cpu_after=88.0, role=PlanRole.NONE)
    shown = []
    for own in (None, 95.0, 60.0):
        world.step()  # something new to be asked for
        world.cells = tuple(replace(hot, name=each.name, cpu_ceiling=own) for each in world.cells)
        await watched.open("/")
        words = await watched.page.inner_text("#now-words")
        shown.append((words.partition(", ")[2], await watched.page.evaluate(MOST_PAINTED)))
    assert [words for words, _ in shown] == [
        "lowest 88 %, 2 above 80 %",
        "lowest 88 %, 0 above their ceilings",
        "lowest 88 %, 2 above their ceilings",
    ]
    assert len({color for _, color in shown}) == 3
    assert "ceilings differ by pool" in await watched.page.inner_text("#figures")
    assert watched.errors == []


async def test_a_node_that_joins_appears(consoles: Consoles) -> None:
    address = await consoles.address(3)
    watched, world = await consoles.page(address), consoles.worlds[address]
    await watched.open("/")
    world.cells = (*world.cells, world._cell(3, 4))
    world.step()
    await watched.page.wait_for_function(ROWS, arg=4)
    assert watched.errors == []


async def test_hidden_tabs_close_their_stream(consoles: Consoles) -> None:
    watched = await consoles.page(await consoles.address(5))
    await watched.open("/")
    await watched.page.evaluate(HIDDEN, True)
    await watched.page.wait_for_selector('#live[data-state="hidden"]')
    await watched.page.evaluate(HIDDEN, False)
    await watched.page.wait_for_selector('#live[data-state="live"]')
    assert watched.errors == []


async def test_the_map_and_the_table_are_used_with_the_keyboard(consoles: Consoles) -> None:
    watched = await consoles.page(await consoles.address(12))
    await watched.open("/")
    await watched.page.focus("#now")
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "Home"):
        await watched.page.keyboard.press(key)
    said = await watched.page.inner_text("#announce")
    assert said.startswith("node-")
    await watched.page.keyboard.press("Enter")
    await watched.page.wait_for_url("**/node?name=node-*")
    await watched.open("/")
    await watched.page.fill("#filter", "node-12")
    await watched.page.wait_for_function(ROWS, arg=1)
    assert watched.errors == []


async def test_hostile_names_are_shown_as_text(consoles: Consoles) -> None:
    watched = await consoles.page(await consoles.address(40, hostile=True))
    for path in (*PAGES, f"/node?name={HOSTILE[0].replace(' ', '%20')}"):
        await watched.open(path)
        assert "Evenkeel" in await watched.page.title()
        assert await watched.page.locator("main img, main script").count() == 0
        text = await watched.page.inner_text("main")
        assert not set(text) & set("\x00\x07\x1b\u202e\u200b")
        wide: int = await watched.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, path
    await watched.open("/plan")
    assert HOSTILE[0] in await watched.page.inner_text("main")
    assert (watched.errors, watched.elsewhere) == ([], [])


async def test_the_printed_address_opens_the_console_and_pauses(consoles: Consoles) -> None:
    token = new_token()
    address = await consoles.address(5, token=token)
    watched, world = await consoles.page(address), consoles.worlds[address]
    await watched.open(f"/health?token={token}")
    assert "token" not in watched.page.url
    await watched.page.fill('input[name="why"]', "network change")
    await watched.page.click('button[type="submit"]')
    await watched.page.wait_for_selector("#resume:not([hidden])")
    assert world.paused is not None
    assert world.paused.why == "network change"
    await watched.page.click("#resume")
    await watched.page.wait_for_selector("#resume", state="hidden")
    assert watched.errors == []
