# SPDX-License-Identifier: Apache-2.0
"""The inside of a pod that is played without containers; started by `deploy_pod`.

It runs as the first process of its own mount, network and process namespaces and is told by
a JSON file what to mount and what to run. Each container gets a root of its own that holds
what its image would, read-only, and all of them share one loopback, as in a pod. Sockets of
the file system lead out of the network namespace. When stdin closes, what runs is asked
to end; when this process ends, nothing of the pod is left. A pod that is to run once is
waited for instead.

Only the standard library: nothing of the repository may be needed in here.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

# linux/sockios.h and linux/if.h
_SET_ADDRESS: Final = 0x8916
_SET_FLAGS: Final = 0x8914
_UP_AND_RUNNING: Final = 0x41
_CHUNK: Final = 1 << 16

Json = dict[str, Any]  # Any: what the file says


def main() -> int:
    """Furnish the pod, run its containers, and return the worst of their exit codes."""
    told: Json = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(told["hostname"])
    for number, address in enumerate(["127.0.0.1", *told["addresses"]]):
        _add_address("lo" if not number else f"lo:{number}", address)
    for container in told["containers"]:
        _furnish(container)
    return asyncio.run(_live(told))


async def _live(told: Json) -> int:
    servers = [await relay(way) for way in told["relays"]]
    running = [_start(container) for container in told["containers"]]
    print("started", flush=True)
    if not told.get("once"):
        await _closed(sys.stdin)
        for process in running:
            process.send_signal(signal.SIGTERM)
    codes = [await asyncio.to_thread(process.wait) for process in running]
    for server in servers:
        server.close()
    return max(map(abs, codes))


def _add_address(interface: str, address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        name = interface.encode()
        packed = struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(address))
        fcntl.ioctl(control, _SET_ADDRESS, packed)
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh22x", name, _UP_AND_RUNNING))


def _furnish(container: Json) -> None:
    """Make the container's root: what its image holds, its mounts, and nothing writable."""
    root = Path(container["root"])
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root)
    for path, target in container["links"].items():
        _inside(root, path).symlink_to(target)
    for path, source in container["mounts"].items():
        _bind(Path(source), _inside(root, path))
    (root / "proc").mkdir()
    _mount("-t", "proc", "proc", root / "proc")
    if container["readOnly"]:
        _mount("-o", "remount,ro", root)


def _bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    _mount("--bind", source, target)
    if not source.is_relative_to("/dev"):
        _mount("-o", "remount,ro,bind", target)


def _inside(root: Path, path: str) -> Path:
    found = root / path.lstrip("/")
    found.parent.mkdir(parents=True, exist_ok=True)
    return found


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _start(container: Json) -> subprocess.Popen[bytes]:
    with Path(container["log"]).open("ab") as log:
        return subprocess.Popen(
            container["argv"],
            env=container["env"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: _enter(container),
        )


def _enter(container: Json) -> None:
    os.chroot(container["root"])
    os.chdir(container["workdir"])
    if container["user"] is not None:
        os.setgroups([])
        os.setgid(container["group"])
        os.setuid(container["user"])


async def relay(way: Mapping[str, Sequence[Any]]) -> asyncio.Server:
    """Lead connections from one address to another; an address is a path or host and port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await _connect(way["to"])
        except OSError:
            writer.close()
            return
        # A cancelled handler would be asked for its error, and that be printed.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))

    if len(way["listen"]) == 1:
        return await asyncio.start_unix_server(serve, *way["listen"])
    return await asyncio.start_server(serve, *way["listen"])


async def _connect(to: Sequence[Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if len(to) == 1:
        return await asyncio.open_unix_connection(*to)
    return await asyncio.open_connection(*to)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _closed(stream: Any) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, stream)
    await reader.read()


if __name__ == "__main__":
    sys.exit(main())
