# SPDX-License-Identifier: Apache-2.0
"""The network of the nodes: a namespace of its own, and the few connections that leave it.

Kubelets refuse loopback addresses, and the host's network stays as it is. So the nodes have
their addresses in a namespace without any way out, and this process holds it. The API server
stays on the host's loopback: connections to its port are passed out to it, and those to
metrics-server, which has to reach the kubelets, are passed in.

Run as a script, with the standard library only. A socket belongs to the namespace in which its
thread was when it was made, so one process can have sockets in both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a script has only its own folder

from controlplane.real_nodes import enter

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16


async def main(arguments: Sequence[str] | None = None) -> None:
    """Make the namespace, then pass connections on until the process is stopped."""
    options = _parser().parse_args(arguments)
    for group in options.cgroup:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    host = os.open("/proc/self/ns/net", os.O_RDONLY)
    enter.unshare(enter.CLONE_NEWNET)
    inside = os.open("/proc/self/ns/net", os.O_RDONLY)
    _ip("link", "set", "lo", "up")
    for address in options.address:
        _ip("address", "add", f"{address}/32", "dev", "lo")
    # The process stays inside: others join the namespace of its main thread.
    await _listen(options.outward, inside, host, inside)
    # Last: once this port answers, everything is in place.
    await _listen(options.inward, host, inside, inside)
    await asyncio.Event().wait()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


async def _listen(port: int, here: int, there: int, home: int) -> None:
    """Pass connections to a port of one namespace on to the same port of the other."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _in(there, home):
            out = socket.socket()
        out.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(out, (LOOPBACK, port))
        except OSError:
            out.close()
            writer.close()
            return
        other = await asyncio.open_connection(sock=out)
        await asyncio.gather(_copy(reader, other[1]), _copy(other[0], writer))

    with _in(here, home):
        server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((LOOPBACK, port))
    await asyncio.start_server(serve, sock=server)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def _in(namespace: int, home: int) -> Iterator[None]:
    enter.setns(namespace, enter.CLONE_NEWNET)
    try:
        yield
    finally:
        enter.setns(home, enter.CLONE_NEWNET)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cgroup", action="append", default=[])
    parser.add_argument("--address", action="append", default=[])
    parser.add_argument("--outward", type=int, required=True)
    parser.add_argument("--inward", type=int, required=True)
    return parser


if __name__ == "__main__":
    asyncio.run(main())
