# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium, and consoles of clusters of three sizes for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from playwright.async_api import Browser, Page, async_playwright

from bench.stands.console import MadeUpCluster
from common.clock import SYSTEM
from console.server import Console

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE_MS = 120_000
"""The machines are shared: a slow page says nothing about the code."""


@dataclass
class Watched:
    """A page, with everything that went wrong on it."""

    page: Page
    address: str
    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on(
            "console",
            lambda said: (
                self.errors.append(said.text) if said.type in {"error", "warning"} else None
            ),
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(f"http://{self.address}/"):
            self.elsewhere.append(url)

    async def open(self, path: str) -> None:
        """Open a page and wait until it shows data and is live."""
        await self.page.goto(f"http://{self.address}{path}", wait_until="load")
        await self.page.wait_for_selector('#live[data-state="live"]')
        await self.page.wait_for_function(
            "() => !/Reading/.test(document.querySelector('#lead')?.textContent ?? '')"
        )


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None and not os.environ.get("CI"):
        pytest.skip("chromium is not installed")
    assert found is not None, "chromium is missing: CI installs it"
    return found


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(
            executable_path=chromium, args=list(FLAGS), timeout=PATIENCE_MS
        )
        yield made
        await made.close()


class Consoles:
    """Consoles that run while a test does."""

    def __init__(self, browser: Browser, stack: AsyncExitStack) -> None:
        self._browser = browser
        self._stack = stack
        self.worlds: dict[str, MadeUpCluster] = {}

    async def address(self, nodes: int, *, hostile: bool = False, token: str | None = None) -> str:
        """Serve a made-up cluster."""
        world = MadeUpCluster(nodes, clock=SYSTEM, hostile=hostile, hot=0.3 if nodes < 50 else 0.06)
        console = Console(world, program="a test", clock=SYSTEM, token=token)
        address = await self._stack.enter_async_context(console.serving(0))
        self.worlds[address] = world
        return address

    async def page(
        self, address: str, *, scheme: str = "light", width: int = 1360, height: int = 900
    ) -> Watched:
        """Return a page of a browser that has seen nothing yet."""
        context = await self._browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": height},
            reduced_motion="reduce",
        )
        self._stack.push_async_callback(context.close)
        watched = Watched(await context.new_page(), address)
        watched.watch()
        return watched


@pytest.fixture
async def consoles(browser: Browser) -> AsyncIterator[Consoles]:
    async with AsyncExitStack() as stack:
        yield Consoles(browser, stack)
