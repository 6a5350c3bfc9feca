# SPDX-License-Identifier: Apache-2.0
"""The control plane from outside: its commands, and what it leaves behind (nothing).

One control plane is played through its whole life once, in processes of its own; the
tests look at the record of that life.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import OPTIONAL, ControlPlane, attach
from controlplane.components import NAMES
from controlplane.ports import is_free
from controlplane.scheduler_config import SHIPPED, without_extenders
from tests.support.repository import ROOT

END_TIMEOUT_S = 30.0


@dataclass
class Life:
    """What happened to one control plane, in this order."""

    root: Path
    kubeconfig: Path
    up: subprocess.CompletedProcess[str]
    nodes: list[dict[str, Any]]
    scheduler_argv: list[str]
    scheduler_config: str
    status: subprocess.CompletedProcess[str]
    second_up: subprocess.CompletedProcess[str]
    status_after_kill: subprocess.CompletedProcess[str]
    running_before_down: list[str]
    down: subprocess.CompletedProcess[str]
    running_after_down: list[str]
    taken_ports: list[str]
    bystander_survived: bool
    second_down: subprocess.CompletedProcess[str]
    left: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    root = tmp_path_factory.mktemp("life") / "cp"
    kubeconfig = root.parent / "kubeconfig"
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        yield _live(root, kubeconfig, bystander)
    finally:
        run("down", "--dir", str(root))
        bystander.kill()
        bystander.wait()


def _live(root: Path, kubeconfig: Path, bystander: subprocess.Popen[bytes]) -> Life:
    here = ("--dir", str(root))
    out = ("--kubeconfig-out", str(kubeconfig))
    up = run("up", "--nodes", "3", "--zones", "2", *out, *here)
    assert up.returncode == 0, up.stderr
    status = run("status", *here)
    second_up = run("up", "--nodes", "1", *here)
    plane = attach(root)
    nodes = plane.api.get("/api/v1/nodes")["items"]
    state = json.loads(plane.folder.state.read_text())
    scheduler = Path(f"/proc/{state['processes']['kube-scheduler']['pid']}/cmdline").read_text()
    scheduler_config = plane.folder.scheduler_config.read_text()
    plane.kill("kwok")
    plane.close()
    status_after_kill = run("status", *here)
    # The pid of kwok now belongs to a stranger.
    state["processes"]["kwok"]["pid"] = bystander.pid
    plane.folder.state.write_text(json.dumps(state))
    running_before_down = programs_in(root)
    down = run("down", *here)
    return Life(
        root=root,
        kubeconfig=kubeconfig,
        up=up,
        nodes=nodes,
        scheduler_argv=scheduler.split("\0"),
        scheduler_config=scheduler_config,
        status=status,
        second_up=second_up,
        status_after_kill=status_after_kill,
        running_before_down=running_before_down,
        down=down,
        running_after_down=programs_in(root),
        taken_ports=[name for name, port in state["ports"].items() if not is_free(port)],
        bystander_survived=bystander.poll() is None,
        second_down=run("down", *here),
        left=sorted(path.name for path in root.iterdir()),
    )


def test_up_tells_of_every_component_and_how_to_use_and_stop_it(life: Life) -> None:
    for name in NAMES:
        assert f"{name} ready on " in life.up.stdout
    assert "3 nodes Ready" in life.up.stdout
    assert "metrics API available" in life.up.stdout
    assert f"kubeconfig: {life.kubeconfig}" in life.up.stdout
    assert f"logs:       {life.root / 'logs'}" in life.up.stdout
    assert f"python -m controlplane down --dir {life.root}`" in life.up.stdout


def test_the_kubeconfig_is_private_and_stands_for_itself(life: Life) -> None:
    assert life.kubeconfig.stat().st_mode & 0o077 == 0
    user = yaml.safe_load(life.kubeconfig.read_text())["users"][0]["user"]
    assert set(user) == {"client-certificate-data", "client-key-data"}


def test_nodes_have_the_promised_size_and_are_dealt_out_to_the_zones(life: Life) -> None:
    allocatable = [node["status"]["allocatable"] for node in life.nodes]
    zones = [node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in life.nodes]
    assert allocatable == [{"cpu": "8", "memory": "32Gi", "pods": "110"}] * 3
    assert sorted(zones) == ["zone-1", "zone-1", "zone-2"]


def test_status_shows_every_component_with_its_log(life: Life) -> None:
    assert life.status.returncode == 0
    for name in NAMES:
        line = line_of(life.status, name)
        assert " ready " in line
        assert line.endswith(str(life.root / "logs" / f"{name}.log"))


def test_a_second_up_in_the_same_folder_is_refused_in_one_line(life: Life) -> None:
    assert life.second_up.returncode == 1
    assert life.second_up.stdout == ""
    assert life.second_up.stderr.startswith(
        f"error: already running in {life.root}: stop it with `"
    )
    assert life.second_up.stderr.endswith(f"python -m controlplane down --dir {life.root}`\n")
    assert life.second_up.stderr.count("\n") == 1


def test_status_fails_and_names_a_component_that_has_ended(life: Life) -> None:
    assert life.status_after_kill.returncode == 1
    assert " ended " in line_of(life.status_after_kill, "kwok")
    assert " ready " in line_of(life.status_after_kill, "kube-apiserver")


def test_down_ends_every_process_and_frees_every_port(life: Life) -> None:
    assert sorted(life.running_before_down) == sorted(set(NAMES) - {"kwok"})
    assert life.down.returncode == 0
    assert life.running_after_down == []
    assert life.taken_ports == []


def test_down_spares_a_stranger_that_was_given_a_pid_of_ours(life: Life) -> None:
    assert life.bystander_survived


def test_down_leaves_nothing_but_the_logs(life: Life) -> None:
    assert life.left == [".lock", "logs"]
    assert life.second_down.returncode == 1
    assert life.second_down.stderr == f"error: no control plane in {life.root}\n"


def test_the_scheduler_runs_with_the_file_that_users_copy(life: Life) -> None:
    """R1.4: nothing but the machine-dependent value differs, and no extender is asked here."""
    kubeconfig = f'"{life.root}/kubeconfigs/kube-scheduler.kubeconfig"'
    assert f"--config={life.root / 'scheduler-config.yaml'}" in life.scheduler_argv
    shipped = without_extenders(SHIPPED.read_text())
    assert life.scheduler_config == shipped.replace("/etc/kubernetes/scheduler.conf", kubeconfig)


def test_the_scheduler_has_taken_the_shipped_settings(control_plane: ControlPlane) -> None:
    url = f"{control_plane.url('kube-scheduler')}/configz"
    config = control_plane.api.get(url)["componentconfig"]
    [profile] = config["profiles"]
    assert profile["schedulerName"] == "default-scheduler"
    assert profile["percentageOfNodesToScore"] == 100


def test_an_interrupted_up_leaves_nothing_behind(tmp_path: Path) -> None:
    root = tmp_path / "cp"
    with subprocess.Popen(
        command("up", "--dir", str(root)), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as up:
        assert up.stdout is not None
        assert up.stdout.readline().startswith("etcd ready")
        up.send_signal(signal.SIGINT)
        assert up.wait(END_TIMEOUT_S) == 130
    assert programs_in(root) == []
    assert sorted(path.name for path in root.iterdir()) == [".lock", "logs"]


def test_a_component_that_ends_fails_up_with_its_last_words(tmp_path: Path) -> None:
    root = tmp_path / "cp"
    broken = tmp_path / "scheduler-config.yaml"
    broken.write_text(SHIPPED.read_text().replace("profiles:", "perfiles:"))
    up = run("up", "--dir", str(root), "--scheduler-config", str(broken), "--without", "kwok")
    assert up.returncode == 1
    assert "error: kube-scheduler ended with exit code 1 before it was ready" in up.stderr
    assert "unknown field" in up.stderr
    assert "perfiles" in up.stderr
    assert programs_in(root) == []


def test_a_guarded_control_plane_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    root = tmp_path / "cp"
    script = f"""
import pathlib, time
from controlplane.cluster import ClusterOptions, up
from controlplane.guardian import Guardian
guardian = Guardian(pathlib.Path({str(root)!r}))
up(ClusterOptions(pathlib.Path({str(root)!r}), without=frozenset({OPTIONAL!r})), lambda line: None)
print("up", flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as wanting:
        assert wanting.stdout is not None
        assert wanting.stdout.readline() == "up\n"
        assert sorted(programs_in(root)) == ["etcd", "kube-apiserver"]
        wanting.kill()
    deadline = time.monotonic() + END_TIMEOUT_S
    while programs_in(root):
        assert time.monotonic() < deadline, programs_in(root)
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status", "--dir", "{empty}"], "no control plane in {empty}"),
        (["down", "--dir", "{empty}/missing"], "no control plane in {empty}/missing"),
        (["up", "--dir", "{full}"], "{full} holds other things (precious)"),
        (["up", "--dir", "{full}/precious"], "{full}/precious is not a folder"),
        (["up", "--dir", "{full}/precious/cp"], "cannot use {full}/precious/cp"),
        (["up", "--dir", "{empty}", "--kubeconfig-out", "{full}/precious/k"], "{full}/precious"),
        (["up", "--dir", "{empty}", "--without", "etcd"], "cannot leave out etcd: choose from"),
        (
            ["up", "--dir", "{empty}", "--scheduler-config", "{empty}/f"],
            "cannot read the scheduler",
        ),
        (
            ["up", "--dir", "{empty}", "--kubeconfig-out", "{full}/precious"],
            "is not a kubeconfig of ours",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "precious").write_text("mine")
    done = run(*(argument.format(empty=empty, full=full) for argument in arguments))
    assert done.returncode == 1
    assert message.format(empty=empty, full=full) in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert (full / "precious").read_text() == "mine"
    assert list(empty.iterdir()) == []


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "controlplane", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True)


def line_of(done: subprocess.CompletedProcess[str], component: str) -> str:
    return next(line for line in done.stdout.splitlines() if line.startswith(f"{component} "))


def programs_in(root: Path) -> list[str]:
    """Name the programs that run with a path inside this folder among their arguments."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = cmdline.read_text(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        name = Path(argv[0]).name
        if name in NAMES and any(str(root) in argument for argument in argv):
            found.append(name)
    return found
