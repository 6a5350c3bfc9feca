# SPDX-License-Identifier: Apache-2.0
"""The console of the demo: pods are seen moving, without reloading and without errors."""

from __future__ import annotations

from pathlib import Path

from tests.browser.conftest import Consoles
from tests.support.stands.demo import QUICK, demo

LANDED = "() => document.querySelector('#done')?.innerText.includes('landed as planned')"


async def test_a_demo_is_followed_in_the_browser(consoles: Consoles, tmp_path: Path) -> None:
    async with demo(tmp_path, *QUICK, "--json", "--keep") as running:
        await running.says("Console: http://")
        address = running.text.partition("Console: http://")[2].split()[0]
        watched = await consoles.page(address)
        await watched.open("/migrations")
        await watched.page.wait_for_function(LANDED)
        for path in ("/", "/plan", "/health", "/node?name=node-1", "/why?kind=node&name=node-1"):
            await watched.open(path)
        assert "node-1" in await watched.page.inner_text("main")
        await watched.open("/")
        assert "20" in await watched.page.inner_text("#figures")
        assert (watched.errors, watched.elsewhere) == ([], [])
