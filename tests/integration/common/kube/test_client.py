# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire, and what comes back as which error."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from common import __version__
from common.kube import errors
from common.kube.api import PatchKind
from common.kube.client import KubeClient, connect
from common.kube.resources import NODES, PODS
from tests.support.certificates import Authority, server_context
from tests.support.clock import FakeClock
from tests.support.stands.scripted_api import (
    Exchange,
    ScriptedApi,
    answer,
    client_of,
    no_answer,
    silence,
    status,
    watch,
    write_kubeconfig,
)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi() as server:
        yield server


@pytest.fixture
async def client(api: ScriptedApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with client_of(api, tmp_path, FakeClock()) as connected:
        yield connected


class FullDisk(list[bytes]):
    def append(self, _: bytes) -> None:
        raise OSError("disk full")


async def _reset(exchange: Exchange) -> None:
    exchange.reset()


async def _not_http(exchange: Exchange) -> None:
    await exchange.raw(b"SSH-2.0-OpenSSH\r\n\r\n")


async def test_requests_carry_our_name_and_return_the_body(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.then(answer(200, b'{"a": 1}'))
    found = await client.get("/api/v1/pods", params={"fieldSelector": "a!=b,c=d+e/ü", "limit": 5})
    (request,) = api.requests
    assert found == b'{"a": 1}'
    assert (request.method, request.path) == ("GET", "/api/v1/pods")
    assert request.params == {"fieldSelector": "a!=b,c=d+e/ü", "limit": "5"}
    assert request.headers["user-agent"] == f"evenkeel/{__version__}"
    assert "authorization" not in request.headers


@pytest.mark.parametrize("kind", PatchKind)
@pytest.mark.parametrize("body", [{"op": "x"}, [{"op": "remove", "path": "/a"}]])
async def test_a_patch_goes_out_as_the_kind_that_was_asked_for(
    api: ScriptedApi, client: KubeClient, kind: PatchKind, body: object
) -> None:
    api.then(answer(200, {}))
    await client.patch(NODES, body, name="n", kind=kind)
    (request,) = api.requests
    assert (request.method, request.path) == ("PATCH", "/api/v1/nodes/n")
    assert request.headers["content-type"] == kind.value
    assert request.body == msgspec.json.encode(body)


async def test_a_patch_is_a_merge_unless_told_otherwise(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.then(answer(200, {}))
    await client.patch(PODS, {}, name="p", namespace="a")
    assert api.requests[0].headers["content-type"] == "application/merge-patch+json"


async def test_objects_are_created_replaced_and_deleted(
    api: ScriptedApi, client: KubeClient
) -> None:
    class Eviction(msgspec.Struct):
        kind: str

    api.then(*[answer(200, {})] * 4)
    await client.create(
        PODS, Eviction("E"), namespace="a", name="p", subresource="eviction", dry_run=True
    )
    await client.create(NODES, {})
    await client.replace(PODS, {"x": 1}, namespace="a", name="p", subresource="status")
    await client.delete(PODS, namespace="a", name="p", uid="u", resource_version="7")
    found = [(r.method, r.path, r.params, msgspec.json.decode(r.body)) for r in api.requests]
    pod = "/api/v1/namespaces/a/pods/p"
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert found == [
        ("POST", f"{pod}/eviction", {"dryRun": "All"}, {"kind": "E"}),
        ("POST", "/api/v1/nodes", {}, {}),
        ("PUT", f"{pod}/status", {}, {"x": 1}),
        ("DELETE", pod, {}, {**options, "preconditions": {"uid": "u", "resourceVersion": "7"}}),
    ]


async def test_a_refusal_keeps_the_words_of_the_server(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.then(status(429, "TooManyRequests", "slow down", headers={"Retry-After": "7"}))
    with pytest.raises(errors.TooManyRequests, match="slow down") as caught:
        await client.get("/x")
    assert caught.value.retry_after_s == 7


@pytest.mark.parametrize("step", [status(429), status(500), status(503), _reset, no_answer])
async def test_nothing_is_retried(
    api: ScriptedApi, client: KubeClient, step: Callable[[Exchange], Awaitable[None]]
) -> None:
    api.then(step, answer(200, {}))
    with pytest.raises(errors.KubeError):
        await client.request("GET", "/x", timeout_s=0.2)
    assert len(api.requests) == 1


async def test_the_page_of_a_proxy_is_an_error_in_short_words(
    api: ScriptedApi, client: KubeClient
) -> None:
    page = b"<html><body><h1>502 Bad Gateway</h1>" + b"<hr>nginx" * 1000
    api.then(answer(502, page, headers={"Content-Type": "text/html"}))
    with pytest.raises(errors.ServerError, match="502 Bad Gateway nginx") as caught:
        await client.get("/x")
    assert len(str(caught.value)) < 250


async def test_a_login_page_is_no_success(api: ScriptedApi, client: KubeClient) -> None:
    html = {"Content-Type": "text/html; charset=utf-8"}
    api.then(answer(200, b"<p>Please log in</p>", headers=html))
    with pytest.raises(errors.Malformed, match="Please log in"):
        await client.create(NODES, {})


async def test_redirects_are_not_followed(api: ScriptedApi, client: KubeClient) -> None:
    api.then(answer(302, b"", headers={"Location": "/login"}), answer(200, {}))
    with pytest.raises(errors.ApiError, match="302"):
        await client.create(NODES, {})
    assert len(api.requests) == 1


async def test_a_server_that_speaks_something_else_is_malformed(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.then(_not_http)
    with pytest.raises(errors.Malformed, match="does not speak HTTP"):
        await client.get("/x")


async def test_a_refused_connection_names_the_server(api: ScriptedApi, client: KubeClient) -> None:
    await api.stop()
    with pytest.raises(errors.Unreachable, match=f"cannot reach {api.url}: connection refused"):
        await client.get("/x")


async def test_an_unknown_host_is_unreachable(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", "http://nowhere.invalid:1")
    async with connect(kubeconfig=kubeconfig, clock=FakeClock()) as client:
        with pytest.raises(errors.Unreachable, match=r"cannot reach http://nowhere\.invalid:1"):
            await client.get("/x")


async def test_a_request_is_given_up_after_its_limit(api: ScriptedApi, client: KubeClient) -> None:
    api.then(no_answer)
    with pytest.raises(errors.TimedOut, match="did not answer in time"):
        await client.request("GET", "/x", timeout_s=0.05)


async def test_requests_wait_for_their_turn(api: ScriptedApi, tmp_path: Path) -> None:
    clock = FakeClock()
    api.then(*[answer(200, {})] * 2, watch())
    async with client_of(api, tmp_path, clock, qps=1, burst=1) as client:
        await client.get("/first")
        second = asyncio.create_task(client.get("/second"))
        third = asyncio.create_task(_lines_of(client))
        await clock.until_sleeping(2)
        assert len(api.requests) == 1
        await clock.advance(1)
        await second
        assert not third.done()
        await clock.advance(1)
        await third
    assert [request.path for request in api.requests] == ["/first", "/second", "/watch"]


async def test_a_stream_gives_whole_lines(api: ScriptedApi, client: KubeClient) -> None:
    api.then(watch({"n": 1}, {"n": 2}))
    assert await _lines_of(client) == [b'{"n": 1}', b'{"n": 2}']


async def test_answers_may_be_compressed_but_streams_may_not(
    api: ScriptedApi, client: KubeClient
) -> None:
    packed = gzip.compress(b'{"a": 1}')
    api.then(answer(200, packed, headers={"Content-Encoding": "gzip"}), watch())
    assert await client.get("/x") == b'{"a": 1}'
    await _lines_of(client)
    encodings = [request.headers["accept-encoding"] for request in api.requests]
    assert encodings == ["gzip", "identity"]


async def test_a_stream_carries_lines_larger_than_any_buffer(
    api: ScriptedApi, client: KubeClient
) -> None:
    large = "x" * (8 << 20)
    api.then(watch(large, "small"))
    assert await _lines_of(client) == [f'"{large}"'.encode(), b'"small"']


async def test_a_refused_stream_raises_what_the_server_said(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.then(status(410, "Expired", "too old resource version"))
    with pytest.raises(errors.Gone, match="too old"):
        await _lines_of(client)


async def test_a_silent_stream_is_given_up(api: ScriptedApi, client: KubeClient) -> None:
    api.then(silence)
    with pytest.raises(errors.TimedOut):
        await _lines_of(client, silence_s=0.05)


@pytest.mark.parametrize("ending", ["end", "reset"])
async def test_half_a_line_is_never_given(
    api: ScriptedApi, client: KubeClient, ending: str
) -> None:
    api.then(watch({"n": 1}, cut=b'{"n": 22', ending=ending))
    lines: list[bytes] = []
    with pytest.raises(errors.Unreachable):
        await _lines_of(client, into=lines)
    assert lines == [b'{"n": 1}']


async def test_an_error_of_the_reader_of_a_stream_stays_what_it_is(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.then(watch({"n": 1}, ending="stay"))
    with pytest.raises(OSError, match="disk full"):
        await _lines_of(client, into=FullDisk())
    await api.until(lambda: api.connections == 0)


async def test_leaving_a_stream_hangs_up(api: ScriptedApi, client: KubeClient) -> None:
    api.then(watch({"n": 1}, ending="stay"))
    async with client.stream("/watch", params={}, connect_s=5, silence_s=5) as lines:
        assert await anext(lines) == b'{"n": 1}'
    await api.until(lambda: api.connections == 0)


async def test_an_authority_of_the_kubeconfig_is_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("server", names=["127.0.0.1"])
    cluster = {"certificate-authority": str(authority.certificate)}
    await _get_over_tls(tmp_path, server_context(server), cluster)


async def test_a_server_name_of_the_kubeconfig_is_what_is_verified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("server", names=["inside.example"])
    ca = {"certificate-authority": str(authority.certificate)}
    context = server_context(server)
    await _get_over_tls(tmp_path, context, {**ca, "tls-server-name": "inside.example"})
    with pytest.raises(errors.Untrusted, match="tls-server-name"):
        await _get_over_tls(tmp_path, context, ca)


async def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    server = Authority(tmp_path).issue("server", names=["127.0.0.1"])
    other = Authority(tmp_path, "other")
    cluster = {"certificate-authority": str(other.certificate)}
    with pytest.raises(
        errors.Untrusted,
        match="certificate signed by unknown authority: check certificate-authority",
    ):
        await _get_over_tls(tmp_path, server_context(server), cluster)


async def test_an_expired_certificate_is_named_as_such(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("server", names=["127.0.0.1"], expired=True)
    cluster = {"certificate-authority": str(authority.certificate)}
    with pytest.raises(errors.Untrusted, match="certificate has expired"):
        await _get_over_tls(tmp_path, server_context(server), cluster)


async def test_verification_can_be_turned_off_in_the_kubeconfig(tmp_path: Path) -> None:
    server = Authority(tmp_path).issue("server", names=["127.0.0.1"])
    await _get_over_tls(tmp_path, server_context(server), {"insecure-skip-tls-verify": True})


async def test_plain_http_on_a_tls_address_is_unreachable(tmp_path: Path) -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\nThis server speaks plain HTTP.")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kubeconfig = write_kubeconfig(tmp_path / "config", f"https://127.0.0.1:{port}")
        async with connect(kubeconfig=kubeconfig, clock=FakeClock()) as client:
            with pytest.raises(errors.Unreachable, match="TLS failed"):
                await client.get("/x")


@pytest.mark.parametrize("way", ["kubeconfig", "environment"])
async def test_a_proxy_is_used(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    api.then(answer(200, {}))
    cluster = {"proxy-url": api.url} if way == "kubeconfig" else {}
    if way == "environment":
        monkeypatch.setenv("http_proxy", api.url)
    kubeconfig = write_kubeconfig(tmp_path / "config", "http://behind.invalid", cluster=cluster)
    async with connect(kubeconfig=kubeconfig, clock=FakeClock()) as client:
        await client.get("/x")
    assert api.requests[0].headers["host"] == "behind.invalid"


async def test_no_proxy_is_used_for_an_exempted_server(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://nowhere.invalid:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    api.then(answer(200, {}))
    async with client_of(api, tmp_path, FakeClock()) as client:
        await client.get("/x")


async def test_a_netrc_file_does_not_get_in_the_way(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    api.then(answer(200, {}))
    kubeconfig = write_kubeconfig(tmp_path / "config", api.url, user={"token": "t"})
    async with connect(kubeconfig=kubeconfig, clock=FakeClock()) as client:
        await client.get("/x")
    assert api.requests[0].headers["authorization"] == "Bearer t"


async def _lines_of(
    client: KubeClient, *, silence_s: float = 30, into: list[bytes] | None = None
) -> list[bytes]:
    found = [] if into is None else into
    params = {"watch": "true"}
    async with client.stream("/watch", params=params, connect_s=5, silence_s=silence_s) as lines:
        async for line in lines:
            found.append(line)
    return found


async def _get_over_tls(
    folder: Path, context: ssl.SSLContext, cluster: Mapping[str, object]
) -> None:
    async with ScriptedApi(answer(200, {}), tls=context) as api:
        kubeconfig = write_kubeconfig(folder / "kubeconfig", api.url, cluster=cluster)
        async with connect(kubeconfig=kubeconfig, clock=FakeClock()) as client:
            await client.get("/x")


async def test_an_answer_larger_than_an_object_can_be_is_given_up(
    api: ScriptedApi, client: KubeClient
) -> None:
    packed = gzip.compress(b" " * (17 << 20), 1)
    api.then(answer(200, packed, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(errors.TooLarge, match="larger than 16 MiB"):
        await client.get("/large")
    api.then(answer(200, b" " * (17 << 20)))
    assert len(await client.get("/large", max_bytes=18 << 20)) == 17 << 20


async def test_a_body_of_several_gzip_members_is_one_body(
    api: ScriptedApi, client: KubeClient
) -> None:
    body = gzip.compress(b"a" * (1 << 20)) + gzip.compress(b"b" * (3 << 20)) + gzip.compress(b"c")
    api.then(answer(200, body, headers={"Content-Encoding": "gzip"}))
    assert await client.get("/members") == b"a" * (1 << 20) + b"b" * (3 << 20) + b"c"


@pytest.mark.parametrize("encoding", ["br", "gzip"])
async def test_a_body_that_cannot_be_unpacked_is_malformed(
    api: ScriptedApi, client: KubeClient, encoding: str
) -> None:
    api.then(answer(200, b"plain", headers={"Content-Encoding": encoding}))
    with pytest.raises(errors.Malformed, match=r"gzip|br"):
        await client.get("/odd")


async def test_of_a_refusal_only_the_beginning_is_read(
    api: ScriptedApi, client: KubeClient
) -> None:
    packed = gzip.compress(b"no " * (1 << 20), 1)
    api.then(answer(403, packed, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(errors.Forbidden, match="HTTP 403: no no no"):
        await client.get("/refused")


async def test_a_watch_event_larger_than_an_object_can_be_ends_the_watch(
    api: ScriptedApi, client: KubeClient
) -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.begin()
        for _ in range(18):
            await exchange.chunk(b"x" * (1 << 20))
        await exchange.closed()

    api.then(endless)
    with pytest.raises(errors.TooLarge, match="an event of more than 16 MiB"):
        await watched(client)


async def test_a_watch_that_comes_packed_is_malformed(api: ScriptedApi, client: KubeClient) -> None:
    api.then(answer(200, gzip.compress(b"{}\n"), headers={"Content-Encoding": "gzip"}))
    with pytest.raises(errors.Malformed, match="compressed a watch"):
        await watched(client)


async def watched(client: KubeClient) -> list[bytes]:
    async with client.stream("/watch", params={}, connect_s=1, silence_s=5) as lines:
        return [line async for line in lines]
