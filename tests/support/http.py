# SPDX-License-Identifier: Apache-2.0
"""HTTP for tests, without the certificates of public authorities.

Reading the system's authorities takes 30 ms, and every new client does it, for plain HTTP too.
A test that opens a few clients would spend more time on that than on anything else.
"""

from __future__ import annotations

import os
import ssl
from typing import Any, Final

import httpx

PATIENCE_S: Final = 60.0
"""A program on a busy machine may answer late; httpx gives up after 5 s."""
_NO_AUTHORITIES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def plain_http(url: str = "", **other: Any) -> httpx.AsyncClient:
    """Return a client for plain HTTP that ignores the proxies of this machine."""
    given = {"timeout": PATIENCE_S, **other}
    return httpx.AsyncClient(base_url=url, verify=_NO_AUTHORITIES, trust_env=False, **given)


async def fetch(url: str, **params: str) -> httpx.Response:
    """Return the answer of one GET on a connection of its own."""
    async with plain_http() as http:
        return await http.get(url, params=params or None)


def trust_no_public_authority() -> None:
    """Let the clients of this process and its children start without public authorities."""
    os.environ["SSL_CERT_FILE"] = os.devnull
