# SPDX-License-Identifier: Apache-2.0
"""One connection pool to one API server.

Connections, TLS, proxies and credentials are the official client's; what goes over them
is ours: bytes in, bytes out, exactly the content type that was asked for, no retries
except one after a refused token. Everything that goes wrong leaves here as an error of
`common.kube.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec
from kubernetes.aio.client.api_client import ApiClient

from common import __version__
from common.clock import Clock
from common.http_body import MIB, BodyError, BodyTooLarge, read_body, read_start
from common.kube.api import JSON_TYPE, MAX_OBJECT_BYTES, KubeApi, Params
from common.kube.errors import KubeconfigError, KubeError, Malformed, TooLarge, Unreachable
from common.kube.kubeconfig import Identity, Login, log_in
from common.kube.lines import LineSplitter
from common.kube.throttle import TokenBucket
from common.kube.translate import parse_retry_after, shortened, status_error, translated

REQUEST_LIMIT_S: Final = 30.0
CONNECT_LIMIT_S: Final = 10.0
_REFUSAL_BYTES: Final = 64 << 10
"""Of an answer that says no, only the beginning is of interest."""


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    params: Params | None
    data: bytes | None
    content_type: str
    limit: aiohttp.ClientTimeout
    encoding: str = "gzip"


@asynccontextmanager
async def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    qps: float = 50,
    burst: int = 100,
    clock: Clock,
) -> AsyncIterator[KubeClient]:
    """Log in to the cluster that flag, KUBECONFIG, service account or home name."""
    login = await log_in(kubeconfig=kubeconfig, context=context, clock=clock)
    client = KubeClient(login, qps=qps, burst=burst, clock=clock)
    try:
        yield client
    finally:
        await client.close()


class KubeClient(KubeApi):
    """Sends requests to one API server, as fast as its token bucket allows."""

    def __init__(self, login: Login, *, qps: float, burst: int, clock: Clock) -> None:
        self.server: str = login.configuration.host
        self._login = login
        self._clock = clock
        self._bucket = TokenBucket(qps=qps, burst=burst, clock=clock)
        self._certificate = login.certificate
        self._api = _open_pool(login)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,  # anything that msgspec can encode
        content_type: str = JSON_TYPE,
        timeout_s: float | None = None,
        max_bytes: int = MAX_OBJECT_BYTES,
    ) -> bytes:
        limit = aiohttp.ClientTimeout(
            total=timeout_s or REQUEST_LIMIT_S, sock_connect=CONNECT_LIMIT_S
        )
        data = None if body is None else msgspec.json.encode(body)
        response = await self._send(_Call(method, path, params, data, content_type, limit))
        with translated(self.server):
            async with response:
                try:
                    return await self._body(response, max_bytes)
                except BaseException:
                    _abort(response)
                    raise

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Params, connect_s: float, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        # Uncompressed: a compressor holds lines back until a block is full.
        limit = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=silence_s)
        response = await self._send(_Call("GET", path, params, None, JSON_TYPE, limit, "identity"))
        lines = self._lines(response)
        try:
            yield lines
        finally:
            await lines.aclose()
            _abort(response)

    async def _lines(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        if _encoding(response) not in ("", "identity"):
            raise Malformed(f"{self.server} compressed a watch although it was asked not to")
        splitter = LineSplitter(MAX_OBJECT_BYTES)
        chunks = response.content.iter_any()
        while True:
            with translated(self.server):
                chunk = await anext(chunks, b"")
            if not chunk:
                break
            for line in splitter.feed(chunk):
                yield line
            if splitter.overlong:
                raise TooLarge(
                    f"{self.server} sent an event of more than {MAX_OBJECT_BYTES // MIB} MiB"
                )
        if splitter.mid_line:
            raise Unreachable(f"{self.server} ended a stream in the middle of a line")

    async def _send(self, call: _Call) -> aiohttp.ClientResponse:
        """Return the answer if it is a yes; a refused token is renewed and tried once more."""
        response, identity = await self._send_once(call)
        if response.status == 401 and await self._login.renew(identity):
            response.release()
            response, _ = await self._send_once(call)
        if 200 <= response.status < 300 and response.content_type != "text/html":
            return response
        raise await self._refusal(response)

    async def _send_once(self, call: _Call) -> tuple[aiohttp.ClientResponse, Identity]:
        await self._bucket.take()
        await self._login.refresh_if_due()
        identity = self._login.identity
        await self._follow_certificate()
        _, url, headers, _, _ = await self._api.param_serialize(
            call.method,
            call.path,
            query_params=list((call.params or {}).items()),
            header_params={
                "Accept": JSON_TYPE,
                "Accept-Encoding": call.encoding,
                "Content-Type": call.content_type,
            },
            auth_settings=["BearerToken"],
        )
        with translated(self.server):
            response = await self._session.request(
                call.method,
                url,
                headers=headers,
                data=call.data,
                timeout=call.limit,
                # A redirected POST would become a GET, and look like a success.
                allow_redirects=False,
                server_hostname=self._login.configuration.tls_server_name,
                proxy=self._login.configuration.proxy,
            )
        return response, identity

    @property
    def _session(self) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = self._api.rest_client.pool_manager
        return session

    async def _body(self, response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
        try:
            return await read_body(response.content.iter_any(), _encoding(response), max_bytes)
        except BodyTooLarge as error:
            raise TooLarge(f"{self.server}: {error}") from error
        except BodyError as error:
            raise Malformed(f"{self.server}: {error}") from error

    async def _follow_certificate(self) -> None:
        """Open a new pool when the client certificate has changed."""
        certificate = self._login.certificate
        if certificate == self._certificate:
            return
        outdated, self._api = self._api, _open_pool(self._login)
        self._certificate = certificate
        await outdated.close()

    async def _refusal(self, response: aiohttp.ClientResponse) -> KubeError:
        with translated(self.server):
            async with response:
                chunks, encoding = response.content.iter_any(), _encoding(response)
                body = await read_start(chunks, encoding, _REFUSAL_BYTES)
        if response.status < 300:
            said = shortened(body.decode("utf-8", "replace"))
            return Malformed(
                f"{self.server} answered with a web page, not as an API server: {said}"
            )
        wait_s = parse_retry_after(response.headers, self._clock.now())
        return status_error(response.status, body, retry_after_s=wait_s)


def _abort(response: aiohttp.ClientResponse) -> None:
    """Give up an answer that was not read to its end.

    Not released: the rest, which may be endless, would have to be read first. Not closed either:
    TLS then waits for the server to say goodbye, and a program that ends meanwhile, as a command
    does, would leave the socket open.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _encoding(response: aiohttp.ClientResponse) -> str:
    return response.headers.get("Content-Encoding", "").strip().lower()


def _open_pool(login: Login) -> ApiClient:
    # The proxy is decided by the login; retries are the business of the callers.
    login.configuration.retries = None
    # Unpacking is ours too: aiohttp's has no limit.
    login.configuration.client_session_kwargs = {"trust_env": False, "auto_decompress": False}
    try:
        api = ApiClient(login.configuration)
    except (OSError, ValueError) as error:
        raise KubeconfigError(f"{login.source}: unusable certificate: {error}") from error
    api.user_agent = f"evenkeel/{__version__}"
    # The official client opens its session with its first own request, which never comes.
    api.rest_client.pool_manager = api.rest_client._create_pool_manager()
    # aiohttp repeats a PUT or DELETE whose connection broke, though it may have been done.
    api.rest_client.pool_manager._retry_connection = False
    return api
