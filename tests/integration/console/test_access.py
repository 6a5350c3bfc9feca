# SPDX-License-Identifier: Apache-2.0
"""Who sees the console: loopback, under its own name, and with a token where there is one."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from console.security import Guard, new_token
from tests.integration.console.stand import serving


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Host": "localhost:8891"}, True),
        ({"Host": "LOCALHOST"}, True),
        ({"Host": "[::1]:8891"}, True),
        ({"Host": "evil.example"}, False),
        ({"Host": "localhost.evil.example:8891"}, False),
        ({"Host": "127.0.0.1.nip.io"}, False),
        ({"Host": "127.0.0.1:80@evil.example"}, False),
        ({"Host": ""}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, False),
        (
            {
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "iframe",
            },
            False,
        ),
        (
            {
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "document",
            },
            True,
        ),
        ({"X-Forwarded-For": "10.0.0.1"}, False),
        ({"Via": "1.1 proxy"}, False),
    ],
)
async def test_only_this_machine_and_our_own_pages_are_answered(
    headers: dict[str, str], allowed: bool
) -> None:
    async with serving() as stand:
        answer = await stand.client.get("/api/cluster", headers=headers)
        assert answer.status_code == (200 if allowed else 403)
        assert "Content-Security-Policy" in answer.headers


@pytest.mark.parametrize(
    "peer", [("10.0.0.7", 1), ("127.0.0.6", 1), ("::ffff:10.0.0.7", 1), ("not an address", 1), None]
)
async def test_other_peers_are_refused(peer: Any) -> None:
    sent: list[Any] = []

    async def app(*_: Any) -> None:
        sent.append("answered")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "client": peer,
        "headers": [(b"host", b"localhost")],
    }
    await Guard(app)(scope, None, send)  # type: ignore[arg-type]  # nothing is received
    assert sent[0]["status"] == 403


async def test_the_token_is_shown_once_and_then_a_cookie_stands_for_it() -> None:
    token = new_token()
    async with serving(token=token) as stand:
        assert (await stand.client.get("/")).status_code == 403
        assert (await stand.client.get("/static/console.css")).status_code == 403
        assert (await stand.client.get("/?token=wrong")).status_code == 403
        shown = await stand.client.get(f"/plan?token={token}&a=b")
        assert (shown.status_code, shown.headers["location"]) == (303, "/plan?a=b")
        cookie = shown.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await stand.client.get("/plan")).status_code == 200
        assert (await stand.client.get("/api/cluster")).status_code == 200


async def test_a_redirect_never_leaves_this_host() -> None:
    token = new_token()
    async with serving(token=token) as stand:
        shown = await stand.client.get(f"http://{stand.address}//evil.example/?token={token}")
        assert shown.headers["location"].startswith("/evil.example")


@pytest.mark.parametrize("cookie", ["", "=", "evenkeel-1=x", "a=\x01", ";;;", "x" * 3000])
async def test_broken_cookies_are_no_cookies(cookie: str) -> None:
    async with serving(token=new_token()) as stand:
        answer = await stand.client.get("/", headers={"Cookie": cookie})
        assert answer.status_code in (400, 403)


async def test_the_cookie_of_another_port_is_not_ours() -> None:
    token = new_token()
    async with serving(token=token) as one, serving(token=new_token()) as other:
        shown = await one.client.get(f"/?token={token}")
        jar = httpx.Cookies()
        jar.extract_cookies(shown)
        value = next(iter(jar.values()))
        port = other.address.rpartition(":")[2]
        stolen = {"Cookie": f"evenkeel-{port}={value}"}
        assert (await other.client.get("/", headers=stolen)).status_code == 403
