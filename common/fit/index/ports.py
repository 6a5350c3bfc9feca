# SPDX-License-Identifier: Apache-2.0
"""Which ports of which nodes are taken.

The rules are those of HostPortInfo in staging kube-scheduler/framework/types.go: the
address 0.0.0.0 stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from common.cluster.shapes import HostPort

EVERY_ADDRESS: Final = "0.0.0.0"


def clash(wanted: HostPort, taken: HostPort) -> bool:
    """Tell whether two pods on one node cannot both have their port."""
    if (wanted.protocol, wanted.port) != (taken.protocol, taken.port):
        return False
    return wanted.ip == taken.ip or EVERY_ADDRESS in (wanted.ip, taken.ip)


class PortIndex:
    """Ports in use: (protocol, port) → row → address → how many pods."""

    def __init__(self) -> None:
        self._users: dict[tuple[str, int], dict[int, dict[str, int]]] = {}

    def move(self, row: int, ports: Iterable[HostPort], sign: int) -> None:
        """Take or give back ports of a node."""
        for port in ports:
            rows = self._users.setdefault((port.protocol, port.port), {})
            addresses = rows.setdefault(row, {})
            addresses[port.ip] = addresses.get(port.ip, 0) + sign
            if not addresses[port.ip]:
                del addresses[port.ip]
            if not addresses:
                del rows[row]

    def taken(self, row: int, ports: Iterable[HostPort]) -> bool:
        """Tell whether a node has given one of these ports away."""
        return any(self._clashes(port, row) for port in ports)

    def rows_taken(self, ports: Iterable[HostPort]) -> list[int]:
        """Return the nodes that have given one of these ports away."""
        return [
            row
            for port in ports
            for row in self._users.get((port.protocol, port.port), ())
            if self._clashes(port, row)
        ]

    def _clashes(self, port: HostPort, row: int) -> bool:
        addresses = self._users.get((port.protocol, port.port), {}).get(row, {})
        if port.ip == EVERY_ADDRESS:
            return bool(addresses)
        return port.ip in addresses or EVERY_ADDRESS in addresses
