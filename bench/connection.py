# SPDX-License-Identifier: Apache-2.0
"""A keep-alive connection of a benchmark, with as little overhead as possible."""

from __future__ import annotations

import socket
import time


def connected(address: str, timeout_s: float | None = None) -> socket.socket:
    """Connect to `host:port` with TCP_NODELAY."""
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Connection:
    """One keep-alive connection; sends one request after the other."""

    def __init__(self, address: str, timeout_s: float | None = None) -> None:
        self._socket = connected(address, timeout_s)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, path: str, body: bytes) -> float:
        """Return the milliseconds until the whole response was received."""
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
        started = time.perf_counter()
        self._socket.sendall(head.encode() + body)
        status, length = self._file.readline(), 0
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        answer = self._file.read(length)
        took = (time.perf_counter() - started) * 1e3
        assert b" 200 " in status, (status, answer[:200])
        return took
