# SPDX-License-Identifier: Apache-2.0
"""The processes of real nodes: one network, and a containerd and a kubelet for every node.

Their names are `network`, `node-1.containerd` and `node-1.kubelet`. They are started, recorded
and stopped like the components of the control plane, except that stopping also ends what they
have started: everything in their cgroups.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from controlplane import identities, kubeconfig
from controlplane.api import Api, Json
from controlplane.build import Report, compile_program, toolbox
from controlplane.components import CA, Site
from controlplane.errors import ConfigError, StartError
from controlplane.folder import Folder
from controlplane.nodes import ZONE
from controlplane.nodes import is_ready as is_node_ready
from controlplane.ports import is_free
from controlplane.processes import Process
from controlplane.real_nodes import cgroups, host, image, settings
from controlplane.real_nodes.settings import SOCKET, RealNodeSpec
from controlplane.state import Argv, State

NETWORK = "network"
METRIC_RESOLUTION_S = 15  # as metrics-server is installed
GROUP = "system:nodes"
HERE = Path(__file__).resolve().parent
PYTHON = (sys.executable, "-I", "-S")
CTR_TIMEOUT_S = 60.0


def names(count: int) -> list[str]:
    """Return the names of the nodes."""
    return [f"node-{number}" for number in range(1, count + 1)]


def containerd_of(node: str) -> str:
    return f"{node}.containerd"


def kubelet_of(node: str) -> str:
    return f"{node}.kubelet"


def address(name: str) -> str:
    """Return where a process serves, for `status`."""
    node, _, part = name.partition(".")
    if part == "kubelet":
        return f"{settings.address(_number(node))}:{settings.KUBELET_PORT}"
    return "-"


def require(folder: Folder, count: int, spec: RealNodeSpec) -> None:
    """Raise with the reason why real nodes cannot run here."""
    reason = host.obstacle() or host.hidden(folder.root, toolbox().root)
    if reason:
        raise ConfigError(reason)
    machine = host.machine()
    if count > settings.MOST:
        raise ConfigError(f"at most {settings.MOST} real nodes")
    if spec.cpu_milli > machine.cpu_milli or spec.memory_bytes > machine.memory_bytes:
        raise ConfigError("a real node cannot be larger than this machine")


def plan(site: Site, state: State, count: int, zones: int) -> None:
    """Add the commands of all processes to a state; the cgroups get a name that no one has."""
    bases = cgroups.bases(f"evenkeel-{secrets.token_hex(4)}")
    state.cgroups = [str(base) for base in bases]
    network = _group_flags(bases, NETWORK)
    addresses = [f"--address={settings.address(number)}" for number in range(1, count + 1)]
    out, into = site.ports["kube-apiserver"], site.ports["metrics-server"]
    relay = (*PYTHON, str(HERE / "relay.py"), f"--outward={out}", f"--inward={into}")
    state.commands[NETWORK] = (*relay, *network, *addresses)
    joined = f"--network={cgroups.find(bases, 'pids') / NETWORK}"
    for name in names(count):
        inside = _entering(site, bases, joined, name)
        state.commands[containerd_of(name)] = (*inside, *_containerd(site, name))
        zone = f"zone-{(_number(name) - 1) % zones + 1}" if zones else ""
        state.commands[kubelet_of(name)] = (*inside, *_kubelet(site, name, zone))
    if "metrics-server" in state.commands:
        enter = (*PYTHON, str(HERE / "enter.py"), joined, "--")
        state.commands["metrics-server"] = (*enter, *state.commands["metrics-server"])


def prepare(
    site: Site, bases: Sequence[Path], count: int, spec: RealNodeSpec, report: Report
) -> None:
    """Make the cgroups and write the files of all nodes."""
    cgroups.make(base / name for base in bases for name in (NETWORK, *names(count)))
    site.folder.nodes.mkdir(mode=0o700, exist_ok=True)
    image.write(_archive(site.folder), _workload(site, report))
    issuer = identities.issuer(site)
    for name in names(count):
        home = _home(site.folder, name)
        for folder in (home / "var" / "log", home / "var" / "lib" / "kubelet", home / "cni"):
            folder.mkdir(parents=True)
        (home / "var" / "run").symlink_to("/run")
        (home / "containerd.toml").write_text(_containerd_config(site, home))
        (home / "kubelet.json").write_text(json.dumps(_kubelet_config(site, spec, name)))
        (home / "cni" / "pods.conflist").write_text(json.dumps(settings.network(_number(name))))
        text = issuer.for_user(f"system:node:{name}", [GROUP])
        kubeconfig.write(site.folder.kubeconfig_of(name), text)


def permissions() -> list[Json]:
    """Return the binding that the API server makes only with the Node authorizer."""
    api_group = "rbac.authorization.k8s.io"
    binding: Json = {
        "apiVersion": f"{api_group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "evenkeel-real-nodes"},
        "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": api_group, "kind": "Group", "name": GROUP}],
    }
    return [binding]


def import_image(folder: Folder, containerd: Argv) -> None:
    """Give a running containerd the image."""
    ctr(containerd, "images", "import", str(_archive(folder)))


def ctr(containerd: Argv, *arguments: str) -> None:
    """Run ctr beside a containerd, with the command that started it up to its binary."""
    inside = containerd[: containerd.index("--") + 1]
    program = Path(containerd[len(inside)]).with_name("ctr")
    command = [*inside, str(program), f"--address={SOCKET}", "--namespace=k8s.io", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CTR_TIMEOUT_S)
    if done.returncode != 0:
        raise StartError(f"ctr {' '.join(arguments)}: {done.stderr.strip()[-300:]}")


def is_ready(site: Site, api: Api, name: str, process: Process) -> bool:
    """Return whether a process of a node does its work."""
    if name == NETWORK:
        return not is_free(site.ports["metrics-server"])
    node, _, part = name.partition(".")
    if part == "containerd":
        return Path(f"/proc/{process.pid}/root{SOCKET}").exists()
    found = api.get("/api/v1/nodes", fieldSelector=f"metadata.name={node}")["items"]
    return bool(found) and is_node_ready(found[0])


def is_relayed(state: State, name: str) -> bool:
    """Return whether the relay listens on the port of a component."""
    return bool(state.cgroups) and name == "metrics-server"


def end(state: State) -> None:
    """Kill everything that runs on the nodes and remove their cgroups."""
    cgroups.remove([Path(path) for path in state.cgroups])


def _number(node: str) -> int:
    return int(node.rpartition("-")[2])


def _group_flags(bases: Iterable[Path], name: str) -> list[str]:
    # The first one decides whether a node has namespaces: only a node's processes are in it.
    ordered = sorted(bases, key=lambda base: "pids" not in base.parts)
    return [f"--cgroup={base / name}" for base in ordered]


def _entering(site: Site, bases: Sequence[Path], joined: str, name: str) -> Argv:
    return (
        *PYTHON,
        str(HERE / "enter.py"),
        joined,
        *_group_flags(bases, name),
        f"--var={_home(site.folder, name) / 'var'}",
        f"--hostname={name}",
        f"--path={site.box.tool('containerd').parent}",  # containerd looks for its shim on PATH
        "--",
    )


def _containerd(site: Site, name: str) -> Argv:
    config = _home(site.folder, name) / "containerd.toml"
    return (str(site.box.tool("containerd")), f"--config={config}")


def _kubelet(site: Site, name: str, zone: str) -> Argv:
    return (
        str(site.box.tool("kubelet")),
        f"--config={_home(site.folder, name) / 'kubelet.json'}",
        f"--kubeconfig={site.folder.kubeconfig_of(name)}",
        f"--hostname-override={name}",
        f"--node-ip={settings.address(_number(name))}",
        *([f"--node-labels={ZONE}={zone}"] if zone else []),
    )


def _kubelet_config(site: Site, spec: RealNodeSpec, name: str) -> Json:
    ca = site.folder.certificate(CA)
    return settings.kubelet(spec, host.machine(), _number(name), ca=ca)


def _containerd_config(site: Site, home: Path) -> str:
    return settings.containerd(
        plugins=site.box.tool("ptp").parent, network=home / "cni", runc=site.box.tool("runc")
    )


def _home(folder: Folder, name: str) -> Path:
    return folder.nodes / name


def _archive(folder: Folder) -> Path:
    return folder.nodes / "workload.tar"


def _workload(site: Site, report: Report) -> Path:
    """Return the program of the image, compiled once per version of its source."""
    source = HERE / "workload" / "main.go"
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    target = site.box.root / "tools" / version / "workload"
    if not target.exists():
        compile_program(source, target, report)
    return target
