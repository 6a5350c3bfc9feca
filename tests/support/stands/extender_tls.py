# SPDX-License-Identifier: Apache-2.0
"""A TLS service whose files a test replaces, and clients of it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from common.clock import SYSTEM, Clock
from common.http_server import address_of, listen, serving
from common.metrics import Metrics
from extender.service import make_app, server_options
from extender.tls import ServerTls
from tests.support.certificates import Authority, Pair
from tests.support.stands.extender_service import ByName, nothing_known

_QUESTION = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
NAME = "extender.test"


class Files(NamedTuple):
    """Where the service looks for its certificate, its key and its clients' authority."""

    certificate: Path
    key: Path
    client_ca: Path

    def tls(self, clock: Clock = SYSTEM) -> ServerTls:
        return ServerTls(*map(str, self), clock=clock)

    def replace_pair(self, pair: Pair) -> None:
        shutil.copy(pair.certificate, self.certificate)
        shutil.copy(pair.key, self.key)

    def replace_ca(self, authority: Authority) -> None:
        shutil.copy(authority.certificate, self.client_ca)


class World:
    """An authority for servers, two for clients, and the files of a service."""

    def __init__(self, folder: Path) -> None:
        made = folder / "made"
        made.mkdir()
        self.servers = Authority(made, "servers")
        self.old_clients = Authority(made, "old-clients")
        self.new_clients = Authority(made, "new-clients")
        self.old_client = self.old_clients.issue("old-client")
        self.new_client = self.new_clients.issue("new-client")
        self.files = Files(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        self.files.replace_pair(self.server_pair("server-1"))
        self.files.replace_ca(self.old_clients)

    def server_pair(self, name: str) -> Pair:
        return self.servers.issue(name, names=[NAME, "127.0.0.1"])

    def client(
        self, pair: Pair | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> ssl.SSLContext:
        """Return the settings of a client that shows this certificate."""
        context = ssl.create_default_context(cafile=str(self.servers.certificate))
        context.maximum_version = version
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context


class Line:
    """One connection; blocking, because only then a session can be handed over."""

    def __init__(
        self,
        address: str,
        context: ssl.SSLContext,
        *,
        name: str = NAME,
        session: ssl.SSLSession | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        raw = socket.create_connection((host, int(port)), timeout=20)
        try:
            self._socket = context.wrap_socket(raw, server_hostname=name, session=session)
        except BaseException:
            raw.close()
            raise

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def session(self) -> ssl.SSLSession | None:
        return self._socket.session

    @property
    def resumed(self) -> bool:
        return bool(self._socket.session_reused)

    @property
    def subject(self) -> str:
        """The common name in the server's certificate."""
        found = self._socket.getpeercert() or {}
        parts = dict(part[0] for part in found["subject"])  # type: ignore[misc]  # typeshed's tuples
        return str(parts["commonName"])

    def ask(self) -> bytes:
        """Return the first line of an answer; TLS 1.3 reports a rejection only here."""
        self._socket.sendall(_QUESTION)
        with self._socket.makefile("rb") as lines:
            status, length = lines.readline(), 0
            while (line := lines.readline()) not in (b"\r\n", b""):
                if line.startswith(b"content-length: "):
                    length = int(line.split()[1])
            lines.read(length)
        return status.strip()


def try_once(address: str, context: ssl.SSLContext, **more: object) -> str:
    """Return whether a new connection is answered or refused."""
    try:
        with Line(address, context, **more) as line:  # type: ignore[arg-type]  # passed on
            return "answered" if line.ask() == b"HTTP/1.1 200 OK" else "refused"
    except (ssl.SSLError, ConnectionError):
        return "refused"


async def attempt(address: str, context: ssl.SSLContext, **more: object) -> str:
    """Return whether a new connection is answered or refused."""
    return await asyncio.to_thread(try_once, address, context, **more)


@asynccontextmanager
async def running_with(tls: ServerTls) -> AsyncIterator[str]:
    """Serve with these settings as the program does; give the address."""
    listener = await listen("127.0.0.1", 0)
    address = address_of(listener)
    app = make_app(ByName(), nothing_known, Metrics("extender"), clock=SYSTEM)
    async with serving(app, listener, **server_options(tls)):
        yield address
