# SPDX-License-Identifier: Apache-2.0
"""`simulate`, `support-bundle`, completion, narrow terminals and Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from common.kube.resources import NAMESPACES
from simulator import build
from simulator.cluster import SimulatedCluster
from tests.support.stands.command import at, evenkeel, evenkeel_process
from tests.support.stands.simulated_cluster import cluster_of, ready, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

World = tuple[SimulatedCluster, tuple[str, str]]
NODE = "ip-10-0-113-27.eu-central-1.compute.internal"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    nodes = [build.node(NODE), build.node("node-b")]
    async with cluster_of(nodes, build.deployment("secret-project", 3)) as cluster:
        await until(cluster, lambda: len(ready(cluster, "secret-project")) == 3)
        yield cluster, at(cluster, tmp_path_factory.mktemp("world"))


async def test_a_scenario_is_played_beside_the_present_configuration(tmp_path: Path) -> None:
    config = tmp_path / "try.yaml"
    config.write_text(
        "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\ncpuThreshold: 65\n"
        "minPodAge: 0s\nminNodeAge: 0s\n"
    )
    found = await evenkeel(
        *("simulate", "--scenario", "hot-spots", "--config", str(config), "-o", "json")
    )
    assert found.code == 0, found.err
    present, tried = found.json["plays"]
    assert tried["moments"][0]["hot"] == 4
    assert tried["moments"][-1]["hot"] == 0
    assert tried["moments"][-1]["evictions"] > 0
    assert tried["ended"]
    assert present["configuration"].startswith("present")


async def test_the_same_scenario_and_seed_lead_to_the_same_moves() -> None:
    asked = ("simulate", "--scenario", "hot-spots", "--seed", "3", "-o", "json")
    first, again = await evenkeel(*asked), await evenkeel(*asked)
    assert first.code == 0, first.err
    assert first.json["plays"][0]["moments"] == again.json["plays"][0]["moments"]
    assert first.json["plays"][0]["moments"][-1]["evictions"] > 0


async def test_a_snapshot_is_played_and_the_cluster_stays_as_it_is(world: World) -> None:
    cluster, flags = world
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in cluster.pods("default")}
    found = await evenkeel(*flags, "simulate", "--from-cluster")
    assert found.code == 0, found.err
    assert "evictions" in found.out
    after = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in cluster.pods("default")}
    assert after == before


@pytest.mark.parametrize("flags", [(), ("--scenario", "x", "--from-cluster")])
async def test_what_to_play_on_has_to_be_said(flags: tuple[str, ...]) -> None:
    found = await evenkeel("simulate", *flags)
    assert found.code == 2
    assert "--scenario S or --from-cluster" in found.err


async def test_a_bundle_has_what_a_report_needs_and_no_names(world: World, tmp_path: Path) -> None:
    _, flags = world
    file = tmp_path / "bundle.tar.gz"
    found = await evenkeel(*flags, "support-bundle", "--anonymize", "--file", str(file))
    assert found.code == 0, found.err
    with tarfile.open(file) as archive:
        texts = {
            member.name: handle.read().decode()
            for member in archive.getmembers()
            if (handle := archive.extractfile(member)) is not None
        }
    parts = {name.partition("/")[2]: json.loads(text) for name, text in texts.items()}
    assert parts["nodes.json"]["nodes"][0]["name"].startswith("node-")
    assert {"status.json", "doctor.json", "plan.json", "migrations.json"} <= parts.keys()
    for text in texts.values():
        assert "secret-project" not in text
        assert NODE not in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_every_shell_has_its_script(shell: str) -> None:
    found = await evenkeel("completion", shell)
    assert found.code == 0
    assert "_EVENKEEL_COMPLETE" in found.out


IN_BASH = """source "$1"
for words in "evenkeel why node ip-" "evenkeel dra"; do
  COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
  _evenkeel_completion evenkeel
  echo "${COMPREPLY[*]}"
done
"""


async def test_bash_completes_commands_and_names(world: World, tmp_path: Path) -> None:
    _, (_, kubeconfig) = world
    script, play = tmp_path / "evenkeel.bash", tmp_path / "play.bash"
    script.write_text((await evenkeel("completion", "bash")).out)
    play.write_text(IN_BASH)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("bash", str(play), str(script)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": kubeconfig, "PATH": path},
    )
    out, err = await process.communicate()
    assert out.decode().splitlines() == [NODE, "drain"]
    assert err == b"", "a person sees it at every Tab"


async def test_names_are_completed_for_kubectl(world: World) -> None:
    _, flags = world
    code = "import sys; from evenkeel.__main__ import complete; sys.exit(complete())"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *flags, "why", "node", "ip-"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert out.decode().splitlines() == [NODE, ":4"]


async def in_terminal(columns: int, *arguments: str) -> str:
    """Run a command in a terminal of some width; return what it shows."""
    main, other = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "evenkeel", *arguments),
        stdout=other,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    os.close(other)
    shown = bytearray()

    def read() -> None:
        while True:
            try:
                chunk = os.read(main, 65536)
            except OSError:
                return
            if not chunk:
                return
            shown.extend(chunk)

    await asyncio.to_thread(read)
    await process.communicate()
    os.close(main)
    return shown.decode()


async def test_names_stay_whole_in_a_terminal_of_eighty_columns(world: World) -> None:
    _, flags = world
    shown = await in_terminal(80, *flags, "nodes")
    assert NODE in shown
    plain = shown.replace("\r", "")
    assert all(len(line) <= 200 for line in plain.splitlines())


def _wait_for_python(pid: int) -> None:
    """Return once our code is being imported: before that, the interpreter itself is at work."""
    maps = Path(f"/proc/{pid}/maps")
    while b"_asyncio" not in maps.read_bytes() and Path(f"/proc/{pid}").exists():
        os.sched_yield()


async def test_ctrl_c_shows_no_traceback(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "evenkeel", "--kubeconfig", str(tmp_path / "none"), "status"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await asyncio.to_thread(_wait_for_python, process.pid)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert b"Traceback" not in err


async def test_a_reader_that_has_seen_enough_is_no_error(world: World) -> None:
    _, flags = world
    command = f"{sys.executable} -m evenkeel {' '.join(flags)} nodes | head -1"
    process = await asyncio.create_subprocess_shell(
        command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert err == b""


async def test_the_version_is_that_of_the_programs() -> None:
    found = await evenkeel_process("--version")
    assert found.out.startswith("evenkeel ")


async def test_the_console_of_the_command_answers_those_with_its_token(world: World) -> None:
    cluster, flags = world
    cluster.store.create(NAMESPACES, build.namespace("evenkeel"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "evenkeel", *flags, "ui"),
        stdout=asyncio.subprocess.PIPE,
        # Tests that run in the background of a shell ignore it, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        base = url.partition("/?")[0]
        async with httpx.AsyncClient(
            follow_redirects=True, timeout=60, trust_env=False, verify=False
        ) as http:
            assert (await http.get(f"{base}/")).status_code == 403
            page = await http.get(url)
            assert page.status_code == 200
            assert "token=" not in str(page.url)
            found = await http.get(f"{base}/api/why", params={"kind": "node", "name": NODE})
            command = await evenkeel(*flags, "why", "node", NODE, "-o", "json")
            # Ages in the words differ by the seconds between both questions.
            answers = [
                [(g["name"], g["passed"]) for g in a["gates"]] for a in (found.json(), command.json)
            ]
            assert answers[0] == answers[1]
            paused = await http.post(
                f"{base}/api/pause", json={"why": "test"}, headers={"Origin": base}
            )
            assert paused.status_code < 300, paused.text
            assert (await evenkeel(*flags, "status", "-o", "json")).json["pause"]["why"] == "test"
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()
    assert process.returncode == 130
