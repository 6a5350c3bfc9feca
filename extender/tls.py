# SPDX-License-Identifier: Apache-2.0
"""TLS of the service, with files that may be replaced at any time.

The server gets `ServerTls.context` once. That context accepts no connections itself but hands
each new one to the context that is in effect at that moment. A new context is made from the
files instead of changing the old one: a trusted CA cannot be removed from an
`ssl.SSLContext`, and a session of the old context could be resumed without presenting its
certificate again. Open connections stay as they are.

Files that do not fit together are rejected and the context in effect stays; at startup they
keep the program from starting.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from common.cli import StartError
from common.clock import Clock

_CHECK_INTERVAL_S: Final = 5.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class _Files(NamedTuple):
    """The contents of the files."""

    certificate: bytes
    key: bytes
    client_ca: bytes


class _Unusable(Exception):
    """The files are missing or do not fit together."""


class _CurrentContext(ssl.SSLContext):
    """One context to the server, which delegates to the context in effect."""

    current: ssl.SSLContext

    # The only call by which asyncio and uvloop start TLS on an accepted connection.
    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*args, **kwargs)


class ServerTls:
    """The certificate of the service, and the CA of the client certificates it requires."""

    def __init__(
        self, cert_file: str, key_file: str, client_ca_file: str = "", *, clock: Clock
    ) -> None:
        self._cert_file = cert_file
        self._key_file = key_file
        self._client_ca_file = client_ca_file
        self._clock = clock
        self._last_error = ""
        self.context: Final = _CurrentContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            self._seen = self._contents()
            self.context.current = self._loaded()
        except _Unusable as error:
            raise StartError(f"cannot serve TLS: {error}") from None

    async def run(self) -> None:
        """Load files that were replaced, until canceled."""
        while True:
            await self._clock.sleep(_CHECK_INTERVAL_S)
            await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Read the files, and use them from now on if they are new and valid."""
        try:
            self._load_if_new(self._contents())
        except _Unusable as error:
            if str(error) != self._last_error:
                log.warning("TLS files not reloaded", error=str(error))
            self._last_error = str(error)
        else:
            self._last_error = ""

    def _load_if_new(self, contents: _Files) -> None:
        if contents == self._seen:
            return
        # Set before loading: the same bad files are tried once, any further change again.
        self._seen = contents
        self.context.current = self._loaded()
        log.info("TLS files reloaded", certificate=self._cert_file)

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
            # Without this OpenSSL would ask for the password of an encrypted key on the terminal.
            context.load_cert_chain(self._cert_file, self._key_file, password=lambda: b"")
        except (ssl.SSLError, OSError, ValueError) as error:
            files = f"certificate {self._cert_file} and key {self._key_file}"
            raise _Unusable(f"{files} do not match: {_why(error)}") from None
        if self._client_ca_file:
            self._require_client_certificates(context)
        return context

    def _require_client_certificates(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(self._client_ca_file)
        except (ssl.SSLError, OSError, ValueError) as error:
            message = f"client CA {self._client_ca_file} contains no certificate: {_why(error)}"
            raise _Unusable(message) from None
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
