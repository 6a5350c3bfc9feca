# SPDX-License-Identifier: Apache-2.0
"""Find free loopback ports that stay free while their server restarts.

Ports are below the ephemeral range of the kernel. Inside that range, a client that keeps
connecting to a stopped server can get the port of the server as its source port and connect to
itself, and the server cannot start again.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from controlplane.errors import StartError

LOOPBACK = "127.0.0.1"
LOWEST = 10240
ATTEMPTS = 2000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return `count` different free ports."""
    candidates = random.sample(range(LOWEST, _first_ephemeral()), ATTEMPTS)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise StartError(f"no {count} free ports on {LOOPBACK} below {_first_ephemeral()}")
    return found


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _first_ephemeral() -> int:
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768
    return first if first > LOWEST + ATTEMPTS else 32768
