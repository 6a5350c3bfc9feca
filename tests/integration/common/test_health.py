# SPDX-License-Identifier: Apache-2.0
"""The health port, over a real socket."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import JSONResponse

from common.health import Health
from common.http_server import CannotListen, address_of, listen, serving
from common.metrics import CONTENT_TYPE, Metrics
from tests.support.http import plain_http

if TYPE_CHECKING:
    from starlette.requests import Request


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("tiny")


@pytest.fixture
def health(metrics: Metrics) -> Health:
    return Health(metrics)


@pytest.fixture
async def client(health: Health) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        health.serving("127.0.0.1", 0) as address,
        plain_http(f"http://{address}") as client,
    ):
        yield client


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_a_program_without_trouble_is_ok(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.text) == (200, "ok\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"


async def test_a_failing_check_says_why_without_being_asked(
    client: httpx.AsyncClient, health: Health
) -> None:
    health.ready("nodes", lambda: None)
    health.ready("pods", lambda: "3 of 12 pages read")
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.text.splitlines() == [
        "[+]shutdown ok",
        "[+]nodes ok",
        "[-]pods failed: 3 of 12 pages read",
        "readyz check failed",
    ]


@pytest.mark.parametrize("query", ["?verbose", "?verbose=true"])
async def test_verbose_lists_every_check(
    client: httpx.AsyncClient, health: Health, query: str
) -> None:
    health.live("loop", lambda: None)
    health.ready("nodes", lambda: None)
    answer = await client.get(f"/readyz{query}")
    assert answer.status_code == 200
    assert answer.text.splitlines() == [
        "[+]loop ok",
        "[+]shutdown ok",
        "[+]nodes ok",
        "readyz check passed",
    ]


async def test_checks_are_asked_anew_each_time(client: httpx.AsyncClient, health: Health) -> None:
    reasons: list[str | None] = [None, "stale", None]
    health.ready("nodes", reasons.pop)
    assert [(await client.get("/readyz")).status_code for _ in range(3)] == [200, 503, 200]


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
async def test_being_not_ready_is_no_reason_for_a_restart(
    client: httpx.AsyncClient, health: Health, path: str
) -> None:
    health.ready("nodes", lambda: "not yet")
    assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz"])
async def test_a_dead_part_fails_all_three(
    client: httpx.AsyncClient, health: Health, path: str
) -> None:
    health.live("watch", lambda: "its task ended")
    answer = await client.get(path)
    assert answer.status_code == 503
    assert "[-]watch failed: its task ended\n" in answer.text


async def test_a_check_that_raises_is_a_failed_check(
    client: httpx.AsyncClient, health: Health
) -> None:
    def broken() -> str | None:
        raise KeyError("nodes")

    health.ready("nodes", broken)
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert "[-]nodes failed: KeyError: 'nodes'\n" in answer.text


async def test_a_program_that_drains_is_alive_but_not_ready(
    client: httpx.AsyncClient, health: Health
) -> None:
    health.drain()
    assert (await client.get("/livez")).status_code == 200
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert "[-]shutdown failed: the program is stopping\n" in answer.text


async def test_metrics_are_in_the_text_format(client: httpx.AsyncClient, metrics: Metrics) -> None:
    metrics.counter("moves_total", "Moves.").inc(3)
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPE
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["evenkeel_moves"].samples[0].value == 3


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/metrics", "/debug/nodes"])
async def test_a_head_is_a_get_without_its_body(
    client: httpx.AsyncClient, health: Health, path: str
) -> None:
    async def nodes(_: Request) -> JSONResponse:
        return JSONResponse({"nodes": 3})

    health.route("/debug/nodes", nodes)
    answer = await client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO"])
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/metrics", "/debug/nodes"])
async def test_nothing_can_be_changed(
    client: httpx.AsyncClient, health: Health, method: str, path: str
) -> None:
    async def nodes(_: Request) -> JSONResponse:
        return JSONResponse({})

    health.route("/debug/nodes", nodes)
    answer = await client.request(method, path)
    assert answer.status_code == (400 if method == "FOO" else 405)
    if answer.status_code == 405:
        assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_an_unknown_path_is_not_found(client: httpx.AsyncClient) -> None:
    assert (await client.get("/")).status_code == 404


async def test_a_program_adds_pages_of_its_own(client: httpx.AsyncClient, health: Health) -> None:
    async def nodes(request: Request) -> JSONResponse:
        return JSONResponse({"sorted by": request.query_params["by"]})

    health.route("/debug/nodes", nodes)
    assert (await client.get("/debug/nodes?by=cpu")).json() == {"sorted by": "cpu"}


async def test_connections_are_kept_open(client: httpx.AsyncClient) -> None:
    streams = {id((await client.get("/livez")).extensions["network_stream"]) for _ in range(3)}
    assert len(streams) == 1


async def test_a_taken_port_is_one_clear_sentence(health: Health) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen) as refusal:
            async with health.serving("127.0.0.1", port):
                pass
    message = f"cannot listen on 127.0.0.1:{port}: address already in use"
    assert str(refusal.value).partition(";")[0] == message


async def test_a_foreign_address_is_one_clear_sentence() -> None:
    with pytest.raises(CannotListen) as refusal:
        await listen("192.0.2.1", 0)
    assert str(refusal.value) == ("cannot listen on 192.0.2.1:0: cannot assign requested address")


async def test_a_name_that_is_no_address_is_one_clear_sentence() -> None:
    with pytest.raises(CannotListen, match=r"^cannot listen on no such host:0: [a-z ]+$"):
        await listen("no such host", 0)


async def test_an_ipv6_address_is_written_as_in_a_url(health: Health) -> None:
    try:
        listener = await listen("::1", 0)
    except CannotListen:
        pytest.skip("this machine has no IPv6")
    port = listener.getsockname()[1]
    assert address_of(listener) == f"[::1]:{port}"
    async with serving(health.app, listener), plain_http() as client:
        assert (await client.get(f"http://[::1]:{port}/livez")).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_all_addresses_are_those_of_both_families(health: Health, host: str) -> None:
    """The manifests name 0.0.0.0; a cluster may have IPv6 only."""
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")
    listener = await listen(host, 0)
    port = listener.getsockname()[1]
    async with serving(health.app, listener), plain_http() as client:
        for address in ("127.0.0.1", "[::1]"):
            assert (await client.get(f"http://{address}:{port}/livez")).status_code == 200


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_without_ipv6_all_addresses_are_those_of_ipv4(
    health: Health, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ipv4Only(socket.socket):
        """What a kernel with `ipv6.disable=1` gives."""

        def __init__(
            self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
        ) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, type, proto, fileno)

    monkeypatch.setattr("common.http_server.socket.socket", Ipv4Only)
    listener = await listen(host, 0)
    monkeypatch.undo()
    port = listener.getsockname()[1]
    async with serving(health.app, listener), plain_http() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/livez")).status_code == 200


async def test_the_port_is_free_again_afterwards(health: Health) -> None:
    async with health.serving("127.0.0.1", 0) as address:
        port = int(address.rpartition(":")[2])
    async with health.serving("127.0.0.1", port) as again:
        assert again == address


async def test_serving_leaves_the_signals_alone(health: Health) -> None:
    before = [signal.getsignal(sig) for sig in (signal.SIGTERM, signal.SIGINT)]
    async with health.serving("127.0.0.1", 0):
        during = [signal.getsignal(sig) for sig in (signal.SIGTERM, signal.SIGINT)]
    assert during == before


async def test_a_failure_of_the_program_comes_out_as_it_is(health: Health) -> None:
    with pytest.raises(LookupError):
        async with health.serving("127.0.0.1", 0):
            raise LookupError


async def test_cancelling_the_program_stops_the_server_and_nothing_stays(health: Health) -> None:
    addresses: asyncio.Queue[str] = asyncio.Queue()

    async def program() -> None:
        async with health.serving("127.0.0.1", 0) as address:
            await addresses.put(address)
            await asyncio.Event().wait()

    task = asyncio.create_task(program())
    address = await addresses.get()
    async with plain_http() as client:
        await client.get(f"http://{address}/livez")  # leaves an idle connection behind
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://{address}/livez")


async def test_a_broken_server_configuration_is_told_before_the_block_runs(health: Health) -> None:
    listener = await listen("127.0.0.1", 0)
    with pytest.raises(FileNotFoundError):
        async with serving(health.app, listener, ssl_certfile="/nowhere", ssl_keyfile="/nowhere"):
            pytest.fail("it does not serve")
    assert listener.fileno() == -1


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.6", 403),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.7", 403),
        ("::ffff:10.0.0.7", 403),
        ("fe80::1%eth0", 403),
        ("localhost", 403),
        (None, 403),
    ],
)
async def test_debug_pages_are_shown_to_loopback_peers_only(
    health: Health, peer: str | None, status: int
) -> None:
    async def nodes(_: Request) -> JSONResponse:
        return JSONResponse({"nodes": 3})

    health.route("/debug/nodes", nodes)
    transport = httpx.ASGITransport(health.app, client=(peer, 1) if peer else None)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://pod:8890") as client:
        answer = await client.get("/debug/nodes")
        assert answer.status_code == status
        assert ("kubectl port-forward" in answer.text) is (status == 403)
        passed_on = await client.get("/debug/nodes", headers={"X-Forwarded-For": "127.0.0.1"})
        assert passed_on.status_code == 403
        assert (await client.get("/livez")).status_code == 200


async def test_a_note_is_told_with_readiness_and_takes_nothing_from_it(
    client: httpx.AsyncClient, health: Health
) -> None:
    notes: list[str | None] = ["not installed"]
    health.note("crd", lambda: notes[0])
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.text) == (200, "ok\n[!]crd: not installed\n")
    assert "[!]crd: not installed\n" in (await client.get("/readyz?verbose")).text
    assert (await client.get("/livez?verbose")).text == "livez check passed\n"
    notes[0] = None
    assert (await client.get("/readyz")).text == "ok\n"


async def test_one_rendering_serves_all_who_wait_and_none_gets_an_older_one(
    client: httpx.AsyncClient, metrics: Metrics
) -> None:
    moves = metrics.counter("moves_total", "Moves.")
    answers = await asyncio.gather(*(client.get("/metrics") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    for count in range(1, 4):
        moves.inc()
        assert f"evenkeel_moves_total {count}.0\n" in (await client.get("/metrics")).text


def test_clients_that_leave_the_queue_are_not_waited_for(
    health: Health, caplog: pytest.LogCaptureFixture
) -> None:
    async def crowd() -> None:
        async with health.serving("127.0.0.1", 0) as address:
            host, _, port = address.rpartition(":")
            before = len(asyncio.all_tasks())
            for _ in range(300):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 12)
                await writer.drain()
                writer.close()
            async with plain_http(f"http://{address}") as client:
                assert (await client.get("/livez")).status_code == 200
            # All of them have gone, and nothing goes on for them.
            assert len(asyncio.all_tasks()) <= before + 64

    uvloop.run(crowd())
    assert [record for record in caplog.records if record.levelname != "INFO"] == []
