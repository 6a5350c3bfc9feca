# SPDX-License-Identifier: Apache-2.0
"""TLS with certificates of both sides, and files that are replaced while it runs."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop
from cryptography.hazmat.primitives import serialization

from common.cli import StartError
from extender.tls import ServerTls
from tests.support.clock import FakeClock
from tests.support.stands.extender_tls import Files, Line, World, attempt, running_with

Run = Callable[[Coroutine[Any, Any, None]], None]
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run on either loop: the program uses uvloop, which begins TLS with its own code."""

    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run


async def test_only_clients_with_a_certificate_of_our_authority_are_answered(world: World) -> None:
    async with running_with(world.files.tls()) as address:
        assert await attempt(address, world.client(world.old_client)) == "answered"
        assert await attempt(address, world.client(world.new_client)) == "refused"
        assert await attempt(address, world.client(None)) == "refused"


async def test_without_an_authority_no_certificate_is_asked_for(world: World) -> None:
    certificate, key, _ = map(str, world.files)
    async with running_with(ServerTls(certificate, key, clock=FakeClock())) as address:
        assert await attempt(address, world.client(None)) == "answered"


async def test_an_expired_client_certificate_is_refused(world: World) -> None:
    expired = world.old_clients.issue("late", expired=True)
    async with running_with(world.files.tls()) as address:
        assert await attempt(address, world.client(expired)) == "refused"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # that is what is tested
async def test_versions_before_1_2_are_refused(world: World) -> None:
    context = world.client(world.old_client)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with running_with(world.files.tls()) as address:
        assert await attempt(address, context) == "refused"


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
def test_a_replaced_authority_refuses_the_old_clients(
    world: World, run: Run, version: ssl.TLSVersion
) -> None:
    old, new = (world.client(pair, version) for pair in (world.old_client, world.new_client))

    async def replace() -> None:
        tls = world.files.tls()
        async with running_with(tls) as address:
            assert await attempt(address, old) == "answered"
            world.files.replace_ca(world.new_clients)
            tls.reload()
            assert await attempt(address, old) == "refused"
            assert await attempt(address, new) == "answered"

    run(replace())


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
def test_an_old_session_does_not_get_an_old_client_in(
    world: World, run: Run, version: ssl.TLSVersion
) -> None:
    old = world.client(world.old_client, version)

    def session_of(address: str, session: ssl.SSLSession | None = None) -> ssl.SSLSession | None:
        with Line(address, old, session=session) as line:
            assert line.ask() == b"HTTP/1.1 200 OK"
            assert line.resumed is (session is not None)
            return line.session

    async def replace() -> None:
        tls = world.files.tls()
        async with running_with(tls) as address:
            session = await asyncio.to_thread(session_of, address)
            await asyncio.to_thread(session_of, address, session)
            world.files.replace_ca(world.new_clients)
            tls.reload()
            assert await attempt(address, old, session=session) == "refused"

    run(replace())


@pytest.mark.parametrize("name", ["extender.test", "127.0.0.1"], ids=["by name", "by address"])
def test_a_replaced_certificate_is_served(world: World, run: Run, name: str) -> None:
    context = world.client(world.old_client)

    def served(address: str) -> str:
        with Line(address, context, name=name) as line:
            return line.subject

    async def replace() -> None:
        tls = world.files.tls()
        async with running_with(tls) as address:
            before = await asyncio.to_thread(served, address)
            world.files.replace_pair(world.server_pair("server-2"))
            tls.reload()
            after = await asyncio.to_thread(served, address)
        assert (before, after) == ("server-1", "server-2")

    run(replace())


def test_open_connections_stay_open(world: World, run: Run) -> None:
    async def replace() -> None:
        tls = world.files.tls()
        async with running_with(tls) as address:
            line = await asyncio.to_thread(Line, address, world.client(world.old_client))
            with line:
                first = await asyncio.to_thread(line.ask)
                world.files.replace_ca(world.new_clients)
                world.files.replace_pair(world.server_pair("server-2"))
                tls.reload()
                second = await asyncio.to_thread(line.ask)
        assert (first, second) == (b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK")

    run(replace())


async def test_a_broken_file_is_refused_once_and_the_old_settings_stay(world: World) -> None:
    tls = world.files.tls()
    async with running_with(tls) as address:
        with structlog.testing.capture_logs() as logs:
            world.files.key.write_text("broken")
            tls.reload()
            tls.reload()
            assert await attempt(address, world.client(world.old_client)) == "answered"
            world.files.client_ca.unlink()
            tls.reload()
            tls.reload()
            assert await attempt(address, world.client(world.old_client)) == "answered"
        assert [line["event"] for line in logs] == ["TLS files not reloaded"] * 2
        assert str(world.files.key) in logs[0]["error"]
        assert str(world.files.client_ca) in logs[1]["error"]
        world.files.replace_pair(world.server_pair("server-2"))
        world.files.replace_ca(world.new_clients)
        tls.reload()
        assert await attempt(address, world.client(world.new_client)) == "answered"


async def test_a_pair_that_is_replaced_in_two_steps_is_taken_up_in_the_end(world: World) -> None:
    tls = world.files.tls()
    new = world.server_pair("server-2")
    before = tls.context.current
    world.files.certificate.write_bytes(new.certificate.read_bytes())
    tls.reload()
    assert tls.context.current is before
    world.files.key.write_bytes(new.key.read_bytes())
    tls.reload()
    assert tls.context.current is not before


async def test_files_are_checked_every_few_seconds(world: World) -> None:
    clock = FakeClock()
    tls = world.files.tls(clock)
    before = tls.context.current
    task = asyncio.create_task(tls.run())
    try:
        await clock.until_sleeping()
        await clock.advance(5.0)
        await clock.until_sleeping()
        assert tls.context.current is before
        world.files.replace_pair(world.server_pair("server-2"))
        await clock.advance(5.0)
        await clock.until_sleeping()
        after = tls.context.current
        assert after is not before
        await clock.advance(5.0)
        await clock.until_sleeping()
        assert tls.context.current is after
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_secret_that_kubernetes_swaps_by_a_link_is_taken_up(world: World, tmp_path: Path) -> None:
    for name, pair in (("1", world.server_pair("a")), ("2", world.server_pair("b"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tls.crt").write_bytes(pair.certificate.read_bytes())
        (tmp_path / name / "tls.key").write_bytes(pair.key.read_bytes())
    (tmp_path / "..data").symlink_to("1")
    mounted = tmp_path / "..data"
    tls = Files(mounted / "tls.crt", mounted / "tls.key", world.files.client_ca).tls()
    before = tls.context.current
    (tmp_path / "..next").symlink_to("2")
    os.replace(tmp_path / "..next", mounted)
    tls.reload()
    assert tls.context.current is not before


def encrypted(files: Files) -> None:
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


def as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


MISTAKES: dict[str, Callable[[World], object]] = {
    "no certificate": lambda world: world.files.certificate.unlink(),
    "no key": lambda world: world.files.key.unlink(),
    "no authority": lambda world: world.files.client_ca.unlink(),
    "empty certificate": lambda world: world.files.certificate.write_text(""),
    "empty key": lambda world: world.files.key.write_text(""),
    "empty authority": lambda world: world.files.client_ca.write_text(""),
    "key of another": lambda world: world.files.key.write_bytes(
        world.server_pair("another").key.read_bytes()
    ),
    "key with a password": lambda world: encrypted(world.files),
    "a folder": lambda world: as_folder(world.files.key),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_files_is_reported_in_one_line_at_the_start(
    world: World, mistake: str
) -> None:
    MISTAKES[mistake](world)
    with pytest.raises(StartError, match=r"^cannot serve TLS: [^\n]+$") as caught:
        world.files.tls()
    assert str(world.files.certificate.parent) in str(caught.value)
