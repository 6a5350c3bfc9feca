# SPDX-License-Identifier: Apache-2.0
"""How an attack on the health port affects the responses to kube-scheduler.

Starts the extender against a synthetic cluster and asks `/filter` over one kept connection,
in turns without and with an attack on the health port: requests on many connections, URLs and
headers that never end, silent connections, and all of these together. The attacker is a separate
process, pinned to one core and rate-limited, so that it takes neither the CPU nor the loopback
device from the measured program. For each attack it prints the median of the ratios of the 99th
percentiles, which must be at most 2, and the peak growth of the memory of the extender. On a busy
machine these times include waiting for a core; the last ratio is without the wait of the main
thread, as the kernel counts it (/proc/PID/schedstat).

    python -m bench.health [--rounds N] [--calls N] [--nodes N]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Final

import httpx
import msgspec

from bench.connection import Connection, connected
from bench.process import extender, memory_mb, running
from bench.synthetic import Cluster, Size, kubeconfig, serve

PROMISED: Final = 2.0
ATTACKS: Final = ("requests", "urls", "headers", "silence", "all")
REQUESTS_PER_S: Final = 400
BYTES_PER_S: Final = 20_000_000
CONNECTIONS: Final = 100
TICK_S: Final = 0.01
PATIENCE_S: Final = 30.0
PACE_S: Final = 0.001
"""Pause between two requests, as a scheduler has."""
SECONDS: Final = 120
"""An attacker ends after this time, even if its parent is gone."""


def main() -> None:
    options = _options()
    if options.role == "serve":
        asyncio.run(serve(Size(options.nodes, 10 * options.nodes), lambda p: print(p, flush=True)))
    elif options.role == "attack":
        _attack(options.kind, options.address)
    else:
        _bench(options)


def _bench(options: argparse.Namespace) -> None:
    print(f"{options.nodes} nodes; {options.rounds} rounds of {options.calls} calls of /filter")
    with _service(options) as (service, health, pid), Connection(service, PATIENCE_S) as line:
        body = _question(options.nodes)
        for _ in range(options.calls):
            line.ask("/filter", body)
        titles = (
            f"{'quiet p99':>11}{'attacked':>11}{'ratio':>8}{'no wait':>9}"
            f"{'memory':>10}{'probes':>10}"
        )
        print(f"  {'attack':10}{titles}")
        for kind in ATTACKS:
            print(_row(kind, line, body, health, pid, options), flush=True)


def _row(
    kind: str, line: Connection, body: bytes, health: str, pid: int, options: argparse.Namespace
) -> str:
    peak = memory_mb("VmHWM", pid=pid)
    pairs, probes = [], []
    for _ in range(options.rounds):
        quiet = _p99(line, body, options.calls, pid)
        with _attacker(kind, health):
            pairs.append((quiet, _p99(line, body, options.calls, pid)))
            probes.append(_alive(health))
    ratio, alone = (
        statistics.median(attacked[i] / quiet[i] for quiet, attacked in pairs) for i in (0, 1)
    )
    quiet_ms, attacked_ms = (
        statistics.median(found[0] for found in side) for side in zip(*pairs, strict=True)
    )
    grown = memory_mb("VmHWM", pid=pid) - peak
    mark = "" if ratio <= PROMISED else f"  EXCEEDED (limit {PROMISED:g})"
    times = f"{quiet_ms:9.2f}ms{attacked_ms:9.2f}ms{ratio:8.2f}{alone:9.2f}"
    return f"  {kind:10}{times}{grown:+8.0f}MB{sum(probes):>8}/{len(probes)}{mark}"


def _p99(line: Connection, body: bytes, calls: int, pid: int) -> tuple[float, float]:
    """Return the 99th percentile of the round trip, and of it without waiting for a core."""
    took, alone = [], []
    for _ in range(calls):
        waited = _waited_ms(pid)
        took.append(line.ask("/filter", body))
        alone.append(took[-1] - (_waited_ms(pid) - waited))
        time.sleep(PACE_S)
    return statistics.quantiles(took, n=100)[98], statistics.quantiles(alone, n=100)[98]


def _waited_ms(pid: int) -> float:
    """Return how long a main thread has waited for a core so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6


def _alive(health: str) -> bool:
    """Return whether a probe is answered in time during the attack."""
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://{health}/livez", timeout=5.0).status_code == 200
    return False


def _question(nodes: int) -> bytes:
    names = [f"node-{i:05d}.example.internal" for i in range(nodes)]
    pod = msgspec.json.decode(Cluster(Size(nodes, 1)).pod(0, 1))
    del pod["metadata"]["managedFields"], pod["spec"]["nodeName"]
    pod["metadata"] |= {"uid": "bench", "name": "bench"}
    pod["status"] = {"phase": "Pending"}
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def _attack(kind: str, address: str) -> None:
    """Attack at a steady rate until stopped."""
    with suppress(OSError):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    kinds = [each for each in ATTACKS if each != "all"] if kind == "all" else [kind]
    parts = [_PARTS[each](address) for each in kinds]
    print("attacking", flush=True)
    end_s = time.monotonic() + SECONDS
    # One attacker has one limit: where it does everything, the kinds take turns.
    for part in cycle(parts):
        began_s = time.monotonic()
        if began_s >= end_s:
            return
        part.tick()
        time.sleep(max(0.001, TICK_S - (time.monotonic() - began_s)))


class _Crowd:
    """Connections that are opened again when the server closes them."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._open: dict[socket.socket, None] = {}
        self._selector = selectors.DefaultSelector()

    def tick(self) -> None:
        """Do the work of one tick."""
        for key, _ in self._selector.select(0):
            self.hear(key.fileobj)  # type: ignore[arg-type]  # sockets were registered
        if len(self._open) < self.size:
            self._join()
        self.speak(list(self._open))

    size = 1

    def speak(self, lines: list[socket.socket]) -> None:
        """Send something."""

    def hear(self, line: socket.socket) -> None:
        """Read the response, and close if the server has closed."""
        try:
            if not line.recv(1 << 20):
                self.leave(line)
        except BlockingIOError:
            pass
        except OSError:
            self.leave(line)

    def leave(self, line: socket.socket) -> None:
        self._selector.unregister(line)
        self._open.pop(line, None)
        line.close()

    def send(self, line: socket.socket, data: bytes) -> int:
        try:
            return line.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.leave(line)
            return 0

    def _join(self) -> None:
        with suppress(OSError):
            line = connected(self._address, PATIENCE_S)
            line.setblocking(False)
            self._selector.register(line, selectors.EVENT_READ)
            self._open[line] = None
            self.begin(line)

    def begin(self, line: socket.socket) -> None:
        """Send what comes first."""


class _Requests(_Crowd):
    """Requests the most expensive pages on many connections at once."""

    size = 16

    def speak(self, lines: list[socket.socket]) -> None:
        due = round(REQUESTS_PER_S * TICK_S)
        for number, line in enumerate(lines[:due]):
            path = ("/metrics", "/livez", "/readyz?verbose", "/nothing")[number % 4]
            self.send(line, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            # The next ones go first in the next tick.
            if line in self._open:
                self._open[line] = self._open.pop(line)


class _Endless(_Crowd):
    """Sends the beginning of a request, and then more of it forever."""

    size = 8
    first = b"GET /livez?"
    more = b"a" * 65536

    def begin(self, line: socket.socket) -> None:
        self.send(line, self.first)

    def speak(self, lines: list[socket.socket]) -> None:
        left = round(BYTES_PER_S * TICK_S)
        for line in lines:
            if left <= 0:
                return
            left -= self.send(line, self.more[:left])


class _Headers(_Endless):
    """The same with headers."""

    first = b"GET /livez HTTP/1.1\r\n"
    more = b"".join(b"x-%06d: %s\r\n" % (n, b"a" * 40) for n in range(1200))


class _Silence(_Crowd):
    """Opens connections and sends one byte on each, now and then."""

    size = CONNECTIONS

    def begin(self, line: socket.socket) -> None:
        self.send(line, b"G")


_PARTS: Final[dict[str, Callable[[str], _Crowd]]] = {
    "requests": _Requests,
    "urls": _Endless,
    "headers": _Headers,
    "silence": _Silence,
}


@contextmanager
def _attacker(kind: str, address: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.health", "attack", "--kind", kind]
    with running([*command, "--address", address]):
        yield


@contextmanager
def _service(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    command = [sys.executable, "-m", "bench.health", "serve", "--nodes", str(options.nodes)]
    with running(command) as (_, port), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = "usageSource: metrics-server\n"
        with extender(settings, kubeconfig(folder, port), folder) as (process, where):
            _until_ready(where["health"])
            yield where["extender"], where["health"], process.pid


def _until_ready(health: str) -> None:
    end_s = time.monotonic() + 120
    while httpx.get(f"http://{health}/readyz").status_code != 200:
        if time.monotonic() > end_s:
            raise SystemExit(httpx.get(f"http://{health}/readyz").text)
        time.sleep(0.1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", nargs="?", default="", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1_000, help="of /filter per round and side")
    parser.add_argument("--kind", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
