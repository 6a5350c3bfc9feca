"""TLS of the service, with files that may be replaced at any time.

`ServerTls.context` is what the server is given, once. It makes no connections itself but
hands each new one to the settings that are in force then. Those are made anew from the files
instead of being changed: a trusted authority cannot be taken out of an `ssl.SSLContext`, and
a session begun under the old settings could be resumed under them without showing its
certificate again. Connections that are open stay as they are.

Files that make no sense together are refused and the settings in force stay; at the start
they are a reason not to start.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from common.clock import Clock
from common.program import StartError

_LOOK_EVERY_S: Final = 5.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class _Files(NamedTuple):
    """What stands in the files."""

    certificate: bytes
    key: bytes
    client_ca: bytes


class _Unusable(Exception):
    """The files are not there or do not go together."""


class _Front(ssl.SSLContext):
    """Looks like one context to a server, and is whichever is in force."""

    in_force: ssl.SSLContext

    # The one call by which asyncio and uvloop begin TLS on an accepted connection.
    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self.in_force.wrap_bio(*args, **kwargs)


class ServerTls:
    """The certificate of the service, and whose certificates its clients must show."""

    def __init__(
        self, cert_file: str, key_file: str, client_ca_file: str = "", *, clock: Clock
    ) -> None:
        self._cert_file = cert_file
        self._key_file = key_file
        self._client_ca_file = client_ca_file
        self._clock = clock
        self._trouble = ""
        self.context: Final = _Front(ssl.PROTOCOL_TLS_SERVER)
        try:
            self._seen = self._contents()
            self.context.in_force = self._loaded()
        except _Unusable as error:
            raise StartError(f"cannot serve TLS: {error}") from None

    async def run(self) -> None:
        """Take up files that were replaced, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Read the files, and use them from now on if they are new and good."""
        try:
            self._take_up(self._contents())
        except _Unusable as error:
            if str(error) != self._trouble:
                log.warning("new TLS files refused, the old ones stay", error=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _take_up(self, contents: _Files) -> None:
        if contents == self._seen:
            return
        # Set before loading: the same bad files are tried once, any further change again.
        self._seen = contents
        self.context.in_force = self._loaded()
        log.info("new TLS files in use", certificate=self._cert_file)

    def _contents(self) -> _Files:
        return _Files(
            _read(self._cert_file, "certificate"),
            _read(self._key_file, "key"),
            _read(self._client_ca_file, "client CA") if self._client_ca_file else b"",
        )

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A key with a password would make OpenSSL ask for it on the terminal.
            context.load_cert_chain(self._cert_file, self._key_file, password=lambda: b"")
        except (ssl.SSLError, OSError, ValueError) as error:
            files = f"certificate {self._cert_file} and key {self._key_file}"
            raise _Unusable(f"{files} do not go together: {_why(error)}") from None
        if self._client_ca_file:
            self._demand_certificates(context)
        return context

    def _demand_certificates(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(self._client_ca_file)
        except (ssl.SSLError, OSError, ValueError) as error:
            words = f"client CA {self._client_ca_file} holds no certificate: {_why(error)}"
            raise _Unusable(words) from None
        context.verify_mode = ssl.CERT_REQUIRED


def _read(name: str, what: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise _Unusable(f"cannot read {what} {name}: {_why(error)}") from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error).lower()
