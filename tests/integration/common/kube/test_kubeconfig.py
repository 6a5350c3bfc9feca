# SPDX-License-Identifier: Apache-2.0
"""Which cluster a kubeconfig selects, and how we stay logged in to it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.kube.client import KubeClient, connect
from common.kube.errors import KubeconfigError, Unauthorized
from common.kube.kubeconfig import Login, Surroundings, log_in
from tests.support.certificates import Authority, server_context
from tests.support.clock import FakeClock
from tests.support.stands.scripted_api import ScriptedApi, answer, status, write_kubeconfig

YES = answer(200, {})
NO = status(401, "Unauthorized", "token expired")


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi() as server:
        yield server


class Machine:
    """A machine on which some of the ways to a cluster exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ: dict[str, str] = {}
        self.home = folder / "home"
        self.token = folder / "token"
        self.authority = Authority(folder)

    def in_cluster(self, host: str = "10.0.0.1", port: int = 443) -> None:
        self.environ |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
        self.token.write_text("of the pod")

    def kubeconfig(self, name: str) -> str:
        return write_kubeconfig(self.folder / name, f"http://{name}")

    async def log_in(
        self, *, flag: str | None = None, context: str | None = None, clock: FakeClock | None = None
    ) -> Login:
        ca = str(self.authority.certificate)
        around = Surroundings(self.environ, self.home, str(self.token), ca)
        return await log_in(
            kubeconfig=flag, context=context, clock=clock or FakeClock(), surroundings=around
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_the_flag_comes_before_all_others(machine: Machine) -> None:
    machine.in_cluster()
    machine.kubeconfig("home")
    machine.environ["KUBECONFIG"] = machine.kubeconfig("environment")
    login = await machine.log_in(flag=machine.kubeconfig("flag"))
    assert login.configuration.host == "http://flag"


async def test_the_environment_comes_before_the_cluster(machine: Machine) -> None:
    machine.in_cluster()
    machine.kubeconfig("home")
    machine.environ["KUBECONFIG"] = machine.kubeconfig("environment")
    assert (await machine.log_in()).configuration.host == "http://environment"


async def test_the_cluster_comes_before_the_home(machine: Machine) -> None:
    machine.in_cluster("fd00::1", 6443)
    machine.kubeconfig("home")
    login = await machine.log_in()
    assert login.configuration.host == "https://[fd00::1]:6443"
    assert login.token == "bearer of the pod"


async def test_the_home_comes_last(machine: Machine) -> None:
    machine.kubeconfig("home")
    assert (await machine.log_in()).configuration.host == "http://home"


async def test_a_context_is_not_looked_for_in_a_service_account(machine: Machine) -> None:
    machine.in_cluster()
    machine.kubeconfig("home")
    assert (await machine.log_in(context="test")).configuration.host == "http://home"


async def test_the_error_names_everything_that_was_tried(machine: Machine) -> None:
    with pytest.raises(KubeconfigError) as caught:
        await machine.log_in()
    assert str(caught.value) == (
        "no cluster configured: --kubeconfig is not given; KUBECONFIG is not set; "
        f"in-cluster: KUBERNETES_SERVICE_HOST is not set; {machine.home} does not exist"
    )


async def test_a_pod_without_a_token_is_told_so(machine: Machine) -> None:
    machine.in_cluster()
    machine.token.unlink()
    with pytest.raises(KubeconfigError, match=f"in-cluster: {machine.token} does not exist"):
        await machine.log_in()


@pytest.mark.parametrize("way", ["flag", "environment"])
async def test_an_explicit_choice_is_never_replaced_by_another_cluster(
    machine: Machine, way: str
) -> None:
    machine.in_cluster()
    machine.kubeconfig("home")
    if way == "environment":
        machine.environ["KUBECONFIG"] = "/does/not/exist:/nor/this"
    with pytest.raises(KubeconfigError, match=r"/does/not/exist.*: no such file"):
        await machine.log_in(flag="/does/not/exist" if way == "flag" else None)


async def test_several_files_are_merged_and_the_first_context_wins(machine: Machine) -> None:
    first, second = machine.folder / "first", machine.folder / "second"
    first.write_text(
        json.dumps(
            {
                "current-context": "a",
                "contexts": [{"name": "a", "context": {"cluster": "far", "user": "me"}}],
            }
        )
    )
    second.write_text(
        json.dumps(
            {
                "current-context": "b",
                "contexts": [{"name": "b", "context": {"cluster": "near"}}],
                "clusters": [
                    {"name": "far", "cluster": {"server": "http://far"}},
                    {"name": "near", "cluster": {"server": "http://near"}},
                ],
                "users": [{"name": "me", "user": {"token": "mine"}}],
            }
        )
    )
    missing = machine.folder / "missing"
    machine.environ["KUBECONFIG"] = os.pathsep.join(map(str, (missing, first, second)))
    login = await machine.log_in()
    assert (login.configuration.host, login.token) == ("http://far", "Bearer mine")
    login = await machine.log_in(context="b")
    assert (login.configuration.host, login.token) == ("http://near", None)


def _config(**changes: Any) -> dict[str, Any]:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://x"}}],
        "users": [{"name": "u", "user": {}}],
    }
    return config | changes


def _cluster(**settings: Any) -> dict[str, Any]:
    return _config(clusters=[{"name": "k", "cluster": {"server": "https://x", **settings}}])


def _user(**settings: Any) -> dict[str, Any]:
    return _config(users=[{"name": "u", "user": settings}])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [1", "not YAML: .* in line 1"),
        ("", "not a kubeconfig"),
        ("- 1", "not a kubeconfig"),
        ("just text", "not a kubeconfig"),
        ("\x00", "special characters are not allowed"),
        ("{}", "no current-context"),
        (_config(contexts=[]), r"context 'c' does not exist \(known: none\)"),
        (_config(contexts=None), "context 'c' does not exist"),
        (_config(contexts=[{"name": "d"}]), r"context 'c' does not exist \(known: d\)"),
        (_config(contexts=[{"x": 1}]), "Expected key name"),
        (_config(clusters=[]), "k in .*clusters"),
        (_config(users=[]), "user 'u' of context 'c' does not exist"),
        (_cluster(server=""), "'' is not the address of an API server"),
        (_cluster(server="x:1"), "'x:1' is not the address of an API server"),
        (_cluster(**{"certificate-authority": "/no/such/ca"}), "/no/such/ca"),
        (_cluster(**{"certificate-authority-data": "%%%"}), "unusable certificate|padding"),
        (_cluster(**{"certificate-authority-data": "eHl6"}), "unusable certificate"),
        (_user(**{"client-certificate": "/no/such/cert"}), "/no/such/cert"),
        (_user(tokenFile="/no/such/token"), "/no/such/token"),
        (_user(exec={"command": "x"}), "apiVersion"),
    ],
)
async def test_a_broken_kubeconfig_is_told_in_one_line(
    machine: Machine, content: str | dict[str, Any], words: str
) -> None:
    path = machine.folder / "broken"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(KubeconfigError, match=f"^--kubeconfig {path}: .*({words})") as caught:
        async with connect(kubeconfig=str(path), clock=FakeClock()):
            pass
    assert "\n" not in str(caught.value)


async def test_secrets_of_a_broken_kubeconfig_are_not_told(machine: Machine) -> None:
    path = machine.folder / "broken"
    path.write_text(json.dumps(_config(users=[{"name": "u", "usr": {"token": "geheim"}}])))
    with pytest.raises(KubeconfigError, match="Expected key user") as caught:
        await machine.log_in(flag=str(path))
    assert "geheim" not in str(caught.value)


async def test_a_folder_is_no_kubeconfig(machine: Machine) -> None:
    with pytest.raises(KubeconfigError, match="directory"):
        await machine.log_in(flag=str(machine.folder))


async def test_a_file_that_may_not_be_decoded_is_told(machine: Machine) -> None:
    path = machine.folder / "binary"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(KubeconfigError, match="decode"):
        await machine.log_in(flag=str(path))


async def test_connecting_looks_at_the_real_environment(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "config", api.url))
    async with connect(clock=FakeClock()) as client:
        assert client.server == api.url


class Plugin:
    """An exec plugin whose token is `t1` the first time, then `t2`, and so on."""

    def __init__(self, folder: Path, *, expires: str = "", tokens_differ: bool = True) -> None:
        self._runs = folder / "runs"
        status = {"token": "t$n" if tokens_differ else "t1"}
        if expires:
            status["expirationTimestamp"] = expires
        credential = {**_API, "kind": "ExecCredential", "status": status}
        self._script = folder / "plugin"
        self._write(
            f"echo x >> {self._runs}\nn=$(($(wc -l < {self._runs})))\n"
            f"cat <<EOF\n{json.dumps(credential)}\nEOF\n"
        )

    @property
    def user(self) -> dict[str, Any]:
        return {"exec": {**_API, "command": str(self._script), "installHint": "get it there"}}

    @property
    def alive(self) -> bool:
        try:
            os.kill(int(self._runs.read_text()), 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def started(self) -> bool:
        return self._runs.exists() and self._runs.read_text().endswith("\n")

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines())

    def breaks(self, words: str) -> None:
        self._write(f"echo x >> {self._runs}\necho '{words}' >&2\nexit 3\n")

    def hangs(self) -> None:
        self._write(f"echo $$ > {self._runs}\nsleep 1000\n")

    def says(self, output: str) -> None:
        self._write(f"cat <<'EOF'\n{output}\nEOF\n")

    def is_removed(self) -> None:
        self._script.unlink()

    def _write(self, text: str) -> None:
        self._script.write_text(f"#!/bin/sh\n{text}")
        self._script.chmod(0o755)


_API = {"apiVersion": "client.authentication.k8s.io/v1"}


@asynccontextmanager
async def _logged_in(
    api: ScriptedApi, folder: Path, clock: FakeClock, user: Mapping[str, Any]
) -> AsyncIterator[KubeClient]:
    kubeconfig = write_kubeconfig(folder / "kubeconfig", api.url, user=user)
    async with connect(kubeconfig=kubeconfig, clock=clock) as client:
        yield client


def _tokens(api: ScriptedApi) -> list[str]:
    return [request.headers["authorization"].split()[-1] for request in api.requests]


async def test_a_plugin_runs_once_while_its_token_is_good(api: ScriptedApi, tmp_path: Path) -> None:
    plugin, clock = Plugin(tmp_path), FakeClock()
    api.then(YES, YES, YES)
    async with _logged_in(api, tmp_path, clock, plugin.user) as client:
        for _ in range(3):
            await client.get("/x")
            await clock.advance(3600)
    assert (_tokens(api), plugin.runs) == (["t1"] * 3, 1)


async def test_a_plugin_runs_again_before_its_token_expires(
    api: ScriptedApi, tmp_path: Path
) -> None:
    clock = FakeClock(now=1_800_000_000)  # 2027-01-15T08:00:00Z
    plugin = Plugin(tmp_path, expires="2027-01-15T08:10:00Z")
    api.then(YES, YES, YES)
    async with _logged_in(api, tmp_path, clock, plugin.user) as client:
        await client.get("/x")
        await clock.advance(580)
        await client.get("/x")
        assert _tokens(api) == ["t1", "t1"]
        await clock.advance(15)
        await client.get("/x")
    assert _tokens(api)[2] == "t2"


async def test_a_refused_token_is_renewed_and_the_request_repeated_once(
    api: ScriptedApi, tmp_path: Path
) -> None:
    plugin = Plugin(tmp_path)
    api.then(YES, NO, YES, NO, NO, YES)
    async with _logged_in(api, tmp_path, FakeClock(), plugin.user) as client:
        await client.get("/x")
        await client.get("/x")
        assert (_tokens(api), plugin.runs) == (["t1", "t1", "t2"], 2)
        with pytest.raises(Unauthorized, match="token expired"):
            await client.get("/x")
    assert (_tokens(api)[3:], plugin.runs) == (["t2", "t3"], 3)


async def test_a_stream_renews_a_refused_token_too(api: ScriptedApi, tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    api.then(NO, YES)
    async with (
        _logged_in(api, tmp_path, FakeClock(), plugin.user) as client,
        client.stream("/x", params={}, connect_s=5, silence_s=5),
    ):
        assert _tokens(api) == ["t1", "t2"]


async def test_the_same_token_again_is_not_tried_again(api: ScriptedApi, tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, tokens_differ=False)
    api.then(NO, YES)
    async with _logged_in(api, tmp_path, FakeClock(), plugin.user) as client:
        with pytest.raises(Unauthorized, match="token expired"):
            await client.get("/x")
    assert len(api.requests) == 1


async def test_many_refused_requests_run_the_plugin_once(api: ScriptedApi, tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    api.then(*[NO] * 5, *[YES] * 5)
    async with _logged_in(api, tmp_path, FakeClock(), plugin.user) as client:
        await asyncio.gather(*(client.get(f"/{number}") for number in range(5)))
    assert plugin.runs == 2


async def test_a_plugin_that_fails_is_quoted(api: ScriptedApi, tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.breaks("please log in first")
    with pytest.raises(KubeconfigError, match=r"exited with 3: please log in first"):
        async with _logged_in(api, tmp_path, FakeClock(), plugin.user):
            pass


async def test_a_plugin_that_fails_later_is_quoted_too(api: ScriptedApi, tmp_path: Path) -> None:
    plugin, clock = Plugin(tmp_path, expires="2027-01-15T08:10:00Z"), FakeClock()
    api.then(YES)
    async with _logged_in(api, tmp_path, clock, plugin.user) as client:
        plugin.breaks("please log in first")
        await clock.advance(601)
        with pytest.raises(KubeconfigError, match="please log in first"):
            await client.get("/x")
    assert (plugin.runs, api.requests) == (2, [])


async def test_a_plugin_that_hangs_is_given_up(api: ScriptedApi, tmp_path: Path) -> None:
    plugin, clock = Plugin(tmp_path), FakeClock()
    plugin.hangs()
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url, user=plugin.user)
    attempt = asyncio.create_task(log_in(kubeconfig=kubeconfig, context=None, clock=clock))
    while not plugin.started:
        await asyncio.to_thread(os.sched_yield)
    await clock.advance(61)
    with pytest.raises(KubeconfigError, match="took too long"):
        await attempt
    assert not plugin.alive


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("hello", "gave no ExecCredential"),
        ('{"apiVersion": "v2", "status": {"token": "x"}}', "speaks v2"),
        (json.dumps({**_API, "status": {}}), "neither a token nor certificate and key"),
        (json.dumps({**_API, "status": {"clientCertificateData": "x"}}), "neither a token"),
    ],
)
async def test_a_plugin_that_talks_nonsense_is_told(
    api: ScriptedApi, tmp_path: Path, output: str, words: str
) -> None:
    plugin = Plugin(tmp_path)
    plugin.says(output)
    with pytest.raises(KubeconfigError, match=words):
        async with _logged_in(api, tmp_path, FakeClock(), plugin.user):
            pass


async def test_a_plugin_may_give_a_certificate(machine: Machine, tmp_path: Path) -> None:
    plugin, clock = Plugin(tmp_path), FakeClock()
    server = machine.authority.issue("server", names=["127.0.0.1"])
    context = server_context(server, clients=machine.authority)
    async with ScriptedApi(YES, YES, tls=context) as api:
        plugin.says(_certificate_of(machine, "first", "2027-01-15T08:10:00Z"))
        ca = {"certificate-authority": str(machine.authority.certificate)}
        kubeconfig = write_kubeconfig(tmp_path / "config", api.url, cluster=ca, user=plugin.user)
        async with connect(kubeconfig=kubeconfig, clock=clock) as client:
            await client.get("/x")
            plugin.says(_certificate_of(machine, "second", "2027-01-15T09:00:00Z"))
            await clock.advance(601)
            await client.get("/x")
    assert [request.user for request in api.requests] == ["first", "second"]


def _certificate_of(machine: Machine, name: str, expires: str) -> str:
    pair = machine.authority.issue(name)
    status = {
        "clientCertificateData": pair.certificate.read_text(),
        "clientKeyData": pair.key.read_text(),
        "expirationTimestamp": expires,
    }
    return json.dumps({**_API, "status": status})


async def test_a_missing_plugin_comes_with_its_hint(api: ScriptedApi, tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.is_removed()
    with pytest.raises(KubeconfigError, match=r"plugin.*is missing.*get it there"):
        async with _logged_in(api, tmp_path, FakeClock(), plugin.user):
            pass


async def test_a_token_file_is_read_again_every_minute(api: ScriptedApi, tmp_path: Path) -> None:
    token, clock = tmp_path / "token", FakeClock()
    token.write_text("t1\n")
    api.then(YES, YES, YES)
    async with _logged_in(api, tmp_path, clock, {"tokenFile": str(token)}) as client:
        await client.get("/x")
        token.write_text("t2\n")
        await client.get("/x")
        await clock.advance(60)
        await client.get("/x")
    assert _tokens(api) == ["t1", "t1", "t2"]


async def test_a_token_file_is_read_at_once_when_its_token_is_refused(
    api: ScriptedApi, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("t1")
    api.then(YES, NO, YES)
    async with _logged_in(api, tmp_path, FakeClock(), {"tokenFile": str(token)}) as client:
        await client.get("/x")
        token.write_text("t2")
        await client.get("/x")
    assert _tokens(api) == ["t1", "t1", "t2"]


async def test_a_token_file_that_is_gone_for_a_moment_does_no_harm(
    api: ScriptedApi, tmp_path: Path
) -> None:
    token, clock = tmp_path / "token", FakeClock()
    token.write_text("t1")
    api.then(YES, YES)
    async with _logged_in(api, tmp_path, clock, {"tokenFile": str(token)}) as client:
        token.unlink()
        await clock.advance(61)
        await client.get("/x")
        token.write_text("t2")
        await clock.advance(61)
        await client.get("/x")
    assert _tokens(api) == ["t1", "t2"]


async def test_a_fixed_token_that_is_refused_is_refused(api: ScriptedApi, tmp_path: Path) -> None:
    api.then(NO, YES)
    async with _logged_in(api, tmp_path, FakeClock(), {"token": "t1"}) as client:
        with pytest.raises(Unauthorized):
            await client.get("/x")
    assert len(api.requests) == 1


async def test_a_user_with_a_password_sends_it(api: ScriptedApi, tmp_path: Path) -> None:
    api.then(YES)
    user = {"username": "me", "password": "secret"}
    async with _logged_in(api, tmp_path, FakeClock(), user) as client:
        await client.get("/x")
    assert api.requests[0].headers["authorization"] == "Basic bWU6c2VjcmV0"


async def test_the_token_of_a_pod_is_read_again(machine: Machine) -> None:
    clock = FakeClock()
    server = machine.authority.issue("server", names=["127.0.0.1"])
    async with ScriptedApi(YES, YES, NO, YES, tls=server_context(server)) as api:
        machine.in_cluster("127.0.0.1", api.port)
        client = KubeClient(await machine.log_in(clock=clock), qps=0, burst=0, clock=clock)
        await client.get("/x")
        machine.token.write_text("t2")
        await clock.advance(61)
        await client.get("/x")
        machine.token.write_text("t3")
        await client.get("/x")
        await client.close()
    assert _tokens(api) == ["pod", "t2", "t2", "t3"]


async def test_a_client_certificate_that_was_replaced_is_used(
    machine: Machine, tmp_path: Path
) -> None:
    server = machine.authority.issue("server", names=["127.0.0.1"])
    mine = machine.authority.issue("first")
    context = server_context(server, clients=machine.authority)
    async with ScriptedApi(YES, YES, tls=context) as api:
        kubeconfig = write_kubeconfig(
            tmp_path / "kubeconfig",
            api.url,
            cluster={"certificate-authority": str(machine.authority.certificate)},
            user={"client-certificate": str(mine.certificate), "client-key": str(mine.key)},
        )
        async with connect(kubeconfig=kubeconfig, clock=FakeClock()) as client:
            await client.get("/x")
            other = machine.authority.issue("second")
            other.certificate.replace(mine.certificate)
            other.key.replace(mine.key)
            await client.get("/x")
    assert [request.user for request in api.requests] == ["first", "second"]
