# SPDX-License-Identifier: Apache-2.0
"""`python -m extender` as a process: flags, signals, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import yaml

from common import __version__
from common.api.contract import API_VERSION
from common.cli import main
from common.kube.resources import LEASES, NODES
from common.kube.timestamps import micro_time
from extender.__main__ import PROGRAM
from extender.main import ExtenderOptions
from simulator import build
from simulator.cluster import SimulatedCluster, write_kubeconfig
from simulator.faults import Latency
from simulator.scheduler.config import TlsConfig
from tests.support.http import fetch
from tests.support.restored_logs import restored_logs
from tests.support.stands.extender import QUICK, asked_by, eventually, guided, launched, leases
from tests.support.stands.extender_service import args, go_json
from tests.support.stands.extender_tls import World
from tests.support.stands.simulated_cluster import cluster_of, pods_of, until
from tests.support.stands.warm_python import WarmProcess, start_program
from tests.support.worlds.migrations import definition

LIMIT_S = 120
REFUSED_S = 20
NAMES = ("node-0", "node-1", "node-2")


class Running:
    """The program as a process; it has said where it listens."""

    def __init__(self, process: WarmProcess, announced: dict[str, str]) -> None:
        self._process = process
        self.announced = announced

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def said(self, message: str) -> None:
        """Wait for a line of the log."""
        while line := await self._process.stderr.readline():
            if message in line.decode():
                return
        raise AssertionError(f"it never logged {message}")

    async def ended(self) -> tuple[int, str]:
        """Return the exit code and the rest of the log."""
        async with asyncio.timeout(LIMIT_S):
            _, stderr = await self._process.communicate()
        return self._process.returncode or 0, stderr.decode()


@asynccontextmanager
async def running(cluster: SimulatedCluster, folder: Path) -> AsyncIterator[Running]:
    """Start the program in a cluster and wait until it is ready."""
    config = {"apiVersion": API_VERSION, "kind": "ExtenderConfiguration", **QUICK}
    (folder / "extender.yaml").write_text(yaml.safe_dump(config))
    kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig")
    flags = ["--config", str(folder / "extender.yaml"), "--kubeconfig", str(kubeconfig)]
    # It starts so fast that it would find no samples, and say so.
    nodes = len(cluster.store.list(NODES))
    await eventually(lambda: len([*cluster.metrics.node_metrics()]) == nodes, "all are measured")
    process = await start_program("extender", *flags, "--port", "0", "--health-port", "0")
    try:
        async with asyncio.timeout(LIMIT_S):
            program = Running(process, json.loads(await process.stdout.readline()))
        await eventually(lambda: leases(cluster), "it has a Lease")
        yield program
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


class HalfAsked:
    """A request of which only the head was sent; the service is waiting for the body."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def begin(self, length: int) -> None:
        head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n"
        self._writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
        # Said when the service begins to read, so from here on it is at work.
        assert await self._reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"

    async def finish(self, body: bytes) -> tuple[str, bytes]:
        """Send the body; return head and body of the answer once the connection is closed."""
        self._writer.write(body)
        head, _, rest = (await self._reader.read()).partition(b"\r\n\r\n")
        return head.decode().lower(), rest


@asynccontextmanager
async def half_asked(address: str, length: int) -> AsyncIterator[HalfAsked]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        asked = HalfAsked(reader, writer)
        await asked.begin(length)
        yield asked
    finally:
        writer.close()


async def test_asked_to_stop_it_drains_and_takes_its_lease_along(tmp_path: Path) -> None:
    body = go_json(args(*NAMES))
    async with cluster_of(3, definition()) as cluster, running(cluster, tmp_path) as program:
        assert sorted(program.announced) == ["extender", "health", "program"]
        assert program.announced["program"] == "extender"
        async with half_asked(program.announced["extender"], len(body)) as question:
            program.send(signal.SIGTERM)
            await eventually(lambda: not leases(cluster), "the Lease is gone")
            head, answer = await question.finish(body)
        code, log = await program.ended()
    assert head.startswith("http/1.1 200 ok")
    assert json.loads(answer)["NodeNames"] == list(NAMES)
    assert code == 0
    assert "stopping program=extender signal=SIGTERM" in log
    assert "stopped program=extender" in log
    assert [line for line in log.splitlines() if " INFO " not in line] == []


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with cluster_of(3, definition()) as cluster, running(cluster, tmp_path) as program:
        cluster.faults.inject(Latency(verbs=("delete",), seconds=LIMIT_S))
        async with half_asked(program.announced["extender"], 100):
            program.send(signal.SIGTERM)
            await program.said("stopping program=extender")
            health = await fetch(f"http://{program.announced['health']}/readyz")
            assert "[-]shutdown failed: the program is stopping" in health.text
            program.send(signal.SIGTERM)
            code, log = await program.ended()
    assert code == 128 + signal.SIGTERM
    assert "stopped" not in log


async def test_the_lease_of_one_that_crashed_is_removed_by_the_next_when_it_is_old(
    tmp_path: Path,
) -> None:
    async with cluster_of(3, definition()) as cluster:
        async with running(cluster, tmp_path) as program:
            program.send(signal.SIGKILL)
            await program.ended()
        [left] = leases(cluster)
        name = left["metadata"]["name"]
        async with guided(cluster, tmp_path):
            await eventually(lambda: len(leases(cluster)) == 2, "a fresh Lease is left alone")
        renewed = {"spec": {"renewTime": micro_time(1_000_000.0)}}
        cluster.store.patch(LEASES, name, renewed, namespace="default")
        async with guided(cluster, tmp_path):
            await eventually(lambda: leases(cluster) and name not in _names(cluster), "it is gone")


def _names(cluster: SimulatedCluster) -> set[str]:
    return {each["metadata"]["name"] for each in leases(cluster)}


async def test_health_has_an_address_of_its_own(tmp_path: Path) -> None:
    kubeconfig = str(write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1"))
    options = ExtenderOptions(kubeconfig=kubeconfig, health_bind_address="127.0.0.2")
    async with launched(options) as (service, said):
        assert said["extender"].startswith("127.0.0.1:")
        assert said["health"].startswith("127.0.0.2:")
        assert (await service.get("/livez")).is_success
        assert (await service.get("/readyz")).status_code == 503


async def test_a_scheduler_with_a_certificate_is_answered_over_tls(tmp_path: Path) -> None:
    world = World(tmp_path)
    client, files = world.old_client, world.files
    tls = TlsConfig(
        ca_file=str(world.servers.certificate),
        cert_file=str(client.certificate),
        key_file=str(client.key),
    )
    async with cluster_of(3, definition()) as cluster:
        options = ExtenderOptions(
            kubeconfig=str(cluster.write_kubeconfig(tmp_path / "kubeconfig")),
            tls_cert_file=str(files.certificate),
            tls_private_key_file=str(files.key),
            client_ca_file=str(files.client_ca),
        )
        async with launched(options, verify=world.client(None)) as (service, said):
            await eventually(service.is_ready, "it is ready")
            with pytest.raises(httpx.TransportError):
                await service.ask("filter", args(*NAMES))
            url = f"https://{said['extender']}"
            async with asked_by(cluster, url, enable_https=True, tls_config=tls):
                cluster.create([build.pod("web")])
                await until(cluster, lambda: "nodeName" in pods_of(cluster, "web")[0]["spec"])
            asked = await service.total("extender_requests_total", verb="filter", code="200")
            assert asked == 1


class Ended(NamedTuple):
    """What is left of a run in this process."""

    returncode: int
    stdout: str
    stderr: str


Call = Callable[..., Ended]


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Call]:
    """Run the program in this process and put back what it changed in it."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")

    def call(*flags: str) -> Ended:
        given = ("--kubeconfig", str(kubeconfig), "--health-port", "0", *flags)
        # What is not refused would run for ever.
        watchdog = threading.Timer(REFUSED_S, os.kill, (os.getpid(), signal.SIGTERM))
        watchdog.start()
        try:
            code = main(PROGRAM, given)
        except SystemExit as leaving:  # argparse's way
            code = int(str(leaving.code))
        finally:
            watchdog.cancel()
        return Ended(code, *capsys.readouterr())

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with restored_logs():
        yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


_OPEN = (
    "is reachable from other hosts: "
    "--tls-cert-file, --tls-private-key-file and --client-ca-file are required"
)
_PAIR = "extender: TLS requires both --tls-cert-file and --tls-private-key-file"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--bind-address 0.0.0.0",
            f"extender: --bind-address 0.0.0.0 {_OPEN}",
        ),
        ("--bind-address ::", f"extender: --bind-address :: {_OPEN}"),
        ("--bind-address example.com", f"extender: --bind-address example.com {_OPEN}"),
        (
            "--bind-address 0.0.0.0 --tls-cert-file c --tls-private-key-file k",
            f"extender: --bind-address 0.0.0.0 {_OPEN}",
        ),
        ("--tls-cert-file c", _PAIR),
        ("--tls-private-key-file k", _PAIR),
        ("--client-ca-file a", _PAIR),
    ],
)
def test_flags_that_would_be_unsafe_or_incomplete_are_refused(
    called: Call, flags: str, message: str
) -> None:
    ended = called("--port", "0", *flags.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint(ended.stderr).startswith(message)


def test_certificates_that_cannot_be_read_are_one_line(called: Call) -> None:
    ended = called("--port", "0", "--tls-cert-file", "c", "--tls-private-key-file", "k")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert complaint(ended.stderr).startswith("extender: cannot serve TLS: cannot read")


@pytest.mark.parametrize("flag", ["--port", "--health-port"])
def test_a_taken_port_is_one_line(called: Call, flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = called("--port", "0", flag, str(port))
    assert (ended.returncode, ended.stdout) == (1, "")
    message = f"extender: cannot listen on 127.0.0.1:{port}: address already in use"
    message += "; choose another port with a flag, 0 is a free one"
    assert complaint(ended.stderr) == message


def test_a_kubeconfig_that_is_missing_is_one_line(called: Call) -> None:
    ended = called("--port", "0", "--kubeconfig", "/nowhere")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "/nowhere: no such file" in complaint(ended.stderr)


def test_the_version_is_printed(called: Call) -> None:
    assert called("--version") == Ended(0, f"extender {__version__}\n", "")


def test_help_explains_every_flag_and_default(called: Call) -> None:
    ended = called("--help")
    assert ended.returncode == 0
    for flag in (
        "--port P", "--health-bind-address A", "--tls-cert-file F", "--tls-private-key-file F",
        "--client-ca-file F",
    ):  # fmt: skip
        assert flag in ended.stdout
    assert "8888" in ended.stdout
    assert "8889" in ended.stdout


def complaint(err: str) -> str:
    """Return the one line that is not the log of the start; there must be just one."""
    lines = [line for line in err.splitlines() if " INFO " not in line]
    assert len(lines) == 1, err
    return lines[0]
