# SPDX-License-Identifier: Apache-2.0
"""Who may see the console, and what a page of it may do.

The console names pods and nodes of all tenants, so it answers loopback peers only, and only under
a name of loopback: a web page elsewhere whose host name leads to 127.0.0.1 sends its own name as
Host. `evenkeel ui` runs among other users of a machine, so there a random token has to be shown
once, in the address that the command prints; afterwards a cookie stands for it. Requests that
change something must come from a page of the console (Origin).

Pages load nothing from elsewhere and run no script that is not a file of ours.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
# No other address of 127.0.0.0/8: Istio's sidecar hands on what comes from outside as 127.0.0.6.
_PEERS: Final = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
_PASSED_ON: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
_SAFE: Final = frozenset({"GET", "HEAD"})
_TOKEN: Final = "token"


def new_token() -> str:
    """Return a token that no one guesses."""
    return secrets.token_urlsafe(32)


class Guard:
    """Lets requests through that may be answered; an ASGI application around another."""

    def __init__(self, app: ASGIApp, *, token: str | None = None) -> None:
        """With a token, only those who have shown it see anything."""
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send))
        else:
            await self._app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        why = _why_foreign(scope, headers)
        if why:
            return _refused(why)
        return self._unknown(scope, headers) if self._token is not None else None

    def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        """Return what a client without the cookie gets."""
        assert self._token is not None
        name = _cookie_name(scope)
        if _equal(_cookie(headers, name), self._token):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = next((value for key, value in query if key == _TOKEN), "")
        if scope["method"] not in _SAFE or not _equal(shown, self._token):
            return _refused("open the address that `evenkeel ui` has printed")
        rest = urlencode([(key, value) for key, value in query if key != _TOKEN])
        # A path that begins with two slashes would be another host.
        path = "/" + scope["path"].lstrip("/")
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), status_code=303)
        answer.set_cookie(name, self._token, httponly=True, samesite="strict", path="/")
        return answer


def _why_foreign(scope: Scope, headers: Headers) -> str:
    """Return why a request does not come from this machine, or from another page; else nothing."""
    if not _is_loopback(scope) or any(name in headers for name in _PASSED_ON):
        return "the console answers on loopback only: use kubectl port-forward"
    host = headers.get("host", "")
    if _host_name(host) not in _NAMES:
        return "the console is called by the name localhost or 127.0.0.1 only"
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return "the console answers its own pages only"
    if origin is None and scope["method"] not in _SAFE:
        return "the console answers its own pages only"
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and not _navigates(
        headers
    ):
        return "the console answers its own pages only"
    return ""


def _navigates(headers: Headers) -> bool:
    """Tell whether a person followed a link; what a page loads from here is refused."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") in {
        "document",
        None,
    }


def _is_loopback(scope: Scope) -> bool:
    client = scope.get("client")
    if client is None:
        return False
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address) in _PEERS


def _host_name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if colon and not host.endswith("]"):
        return name.lower() if port.isascii() and port.isdecimal() else ""
    return host.lower()


def _cookie_name(scope: Scope) -> str:
    """Return a name for each port: browsers send cookies to all ports of a host."""
    server = scope.get("server")
    return f"evenkeel-{server[1] if server else 0}"


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())


def _refused(why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=403, headers={"Cache-Control": "no-store"})


def _with_headers(send: Send, more: Mapping[str, str] = HEADERS) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in more.items():
                headers[name] = value
        await send(message)

    return sending
