# SPDX-License-Identifier: Apache-2.0
"""A running control plane: start it, inspect it, break parts of it, stop it.

Every process is written into the state file as soon as it runs. If starting fails or is
interrupted, everything that was started is stopped again; afterwards `attach` finds a running
control plane from any other process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from controlplane import aggregation, identities, nodes, processes, scheduler_config
from controlplane.api import Api, Json
from controlplane.build import NODE_PARTS, Report, Toolbox, build
from controlplane.components import (
    ADMIN,
    CA,
    COMPONENTS,
    METRIC_RESOLUTION_S,
    NAMES,
    PORTS,
    Component,
    Site,
    by_name,
)
from controlplane.errors import ConfigError, FolderError, StartError
from controlplane.folder import Folder, default_root
from controlplane.kubeconfig import Kubeconfigs
from controlplane.nodes import NodeSpec
from controlplane.ports import LOOPBACK, free_ports, is_free
from controlplane.real_nodes import fleet
from controlplane.real_nodes.settings import RealNodeSpec
from controlplane.releases import Release, chosen_release
from controlplane.state import Argv, State, load, save
from controlplane.waiting import until

READY_TIMEOUT_S = 180.0  # a shared machine with two cores can be slow
NODE_TIMEOUT_S = 0.2
LOG_LINES = 5
OPTIONAL = tuple(component.name for component in COMPONENTS if component.optional)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Options of a control plane."""

    root: Path
    nodes: int = 0
    zones: int = 0
    node: NodeSpec = field(default_factory=NodeSpec)
    scheduler_config: Path = scheduler_config.SHIPPED
    extender_url: str | None = None
    without: frozenset[str] = frozenset()
    release: Release = field(default_factory=chosen_release)
    real_nodes: int = 0
    """Nodes with real kubelets, instead of those of kwok."""
    real_node: RealNodeSpec = field(default_factory=RealNodeSpec)
    pod_groups: bool = False

    @property
    def left_out(self) -> frozenset[str]:
        """The components that do not run: kwok would take real nodes for its own."""
        return self.without | {"kwok"} if self.real_nodes else self.without


class Condition(Enum):
    """The condition of a component."""

    READY = "ready"
    UNREADY = "running, not ready"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One line of `status`."""

    name: str
    condition: Condition
    pid: int
    address: str
    log: Path


class ControlPlane:
    """A control plane in its folder; start one with `up`, find one with `attach`."""

    def __init__(self, site: Site, state: State) -> None:
        self._site = site
        self._state = state

    @property
    def folder(self) -> Folder:
        return self._site.folder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder.kubeconfig

    @property
    def server(self) -> str:
        return self._site.url("kube-apiserver")

    @property
    def kubectl(self) -> Path:
        return self._site.box.binary("kubectl")

    @functools.cached_property
    def api(self) -> Api:
        """The administrator's access to the API server."""
        folder = self.folder
        return Api(
            self.server,
            ca=folder.certificate(CA),
            certificate=folder.certificate(ADMIN),
            key=folder.key(ADMIN),
        )

    @functools.cached_property
    def kubeconfigs(self) -> Kubeconfigs:
        """Issues kubeconfigs for other users."""
        return identities.issuer(self._site)

    @property
    def cgroups(self) -> list[Path]:
        """The folders of real nodes in the cgroup hierarchies; empty without real nodes."""
        return [Path(path) for path in self._state.cgroups]

    def planned(self) -> list[str]:
        """Return the names of all processes of this control plane."""
        return list(self._state.commands)

    def command(self, name: str) -> Argv:
        """Return how a process is started."""
        try:
            return self._state.commands[name]
        except KeyError:
            raise ConfigError(f"this control plane runs without {_known(name).name}") from None

    def url(self, component: str) -> str:
        """Return the URL of a component."""
        return self._site.url(component, _known(component).scheme)

    def status(self) -> list[ComponentStatus]:
        return [self._status(name) for name in self._state.commands]

    def start(self, name: str) -> None:
        """Start a stopped component with its flags and data."""
        self.launch(name)
        self.wait_ready(name)

    def stop(self, name: str) -> None:
        """Stop a component and wait until it has exited."""
        processes.end(self._process(name))

    def kill(self, name: str) -> None:
        """Kill a component, like a crash."""
        processes.kill(self._process(name))

    def restart(self, name: str) -> None:
        """Stop a component and start it again on the same port."""
        self.stop(name)
        self.start(name)

    def ended(self) -> list[str]:
        """Return the components that should run but do not."""
        return self._state.ended()

    def configure_scheduler(self, source: Path, *, extender_url: str | None = None) -> None:
        """Restart kube-scheduler with another configuration."""
        self.write_scheduler_config(source, extender_url)
        self.restart("kube-scheduler")

    def write_scheduler_config(self, source: Path, extender_url: str | None) -> None:
        kubeconfig = str(self.folder.kubeconfig_of("kube-scheduler"))
        text = scheduler_config.read(source)
        if extender_url is None and source == scheduler_config.SHIPPED:
            # No extender listens at the address in the file, or another program does.
            text = scheduler_config.without_extenders(text)
        fitted = scheduler_config.localize(text, kubeconfig=kubeconfig, extender_url=extender_url)
        self.folder.scheduler_config.write_text(fitted)

    def add_nodes(self, manifests: Sequence[Json]) -> None:
        """Create nodes and wait until the scheduler may use them."""
        names = [manifest["metadata"]["name"] for manifest in manifests]
        self.api.create(manifests)
        if "kwok" not in self._state.alive():
            return
        untainted = "kube-controller-manager" in self._state.alive()
        waiting = nodes.Waiting(self.api, names, untainted=untainted)
        until(
            waiting.over,
            timeout_s=READY_TIMEOUT_S + NODE_TIMEOUT_S * len(names),
            what=f"{len(names)} nodes did not become Ready",
        )

    def launch(self, name: str) -> None:
        """Start a component without waiting for it."""
        if name in self._state.alive():
            raise StartError(f"{name} is already running")
        argv = self.command(name)
        self._refuse_taken_port(name)
        log = self.folder.log(name)
        with _undisturbed():
            self._state.processes[name] = processes.start(argv, log=log, env=self._environment())
            save(self._state, self.folder)

    def wait_ready(self, name: str) -> None:
        """Wait until a component is ready; fail at once when one has exited."""
        until(
            lambda: self._is_ready(name),
            timeout_s=READY_TIMEOUT_S,
            what=f"{name} did not become ready (log: {self.folder.log(name)})",
        )

    def end_all(self) -> None:
        """Stop everything that was started: the clients of the API server first."""
        fleet.end(self._state)
        started = [name for name in reversed(NAMES) if name in self._state.processes]
        for name in started:
            if name in OPTIONAL:
                processes.send(self._state.processes[name], signal.SIGTERM)
        for name in started:
            processes.end(self._state.processes[name])
        for process in self._state.processes.values():
            processes.reap(process)

    def close(self) -> None:
        """Close our connections; the control plane keeps running."""
        if "api" in self.__dict__:
            self.api.close()

    def down(self) -> None:
        """Stop the control plane and delete all files except its logs."""
        self.close()
        with self.folder.locked():
            self.end_all()
            self.folder.clear()

    def _process(self, name: str) -> processes.Process:
        try:
            return self._state.processes[name]
        except KeyError:
            raise ConfigError(f"this control plane runs without {_known(name).name}") from None

    def _status(self, name: str) -> ComponentStatus:
        process = self._state.processes.get(name)
        condition = Condition.ENDED
        if process is not None and process.alive:
            ready = self._answers(name, process)
            condition = Condition.READY if ready else Condition.UNREADY
        address = f"{LOOPBACK}:{self._site.ports[name]}" if name in NAMES else fleet.address(name)
        pid = process.pid if process else 0
        return ComponentStatus(name, condition, pid, address, self.folder.log(name))

    def _is_ready(self, name: str) -> bool:
        process = self._process(name)
        if not process.alive:
            raise StartError(self._exit_message(name, process))
        return self._answers(name, process)

    def _answers(self, name: str, process: processes.Process) -> bool:
        if name not in NAMES:
            return fleet.is_ready(self._site, self.api, name, process)
        return self.api.answers(by_name(name).ready_url(self._site))

    def _exit_message(self, name: str, process: processes.Process) -> str:
        code = processes.reap(process)
        log = self.folder.log(name)
        lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
        how = "" if code is None else f" with exit code {code}"
        return "\n  ".join([f"{name} ended{how} before it was ready; the end of {log}:", *lines])

    def _refuse_taken_port(self, name: str) -> None:
        port = self._site.ports.get(name)
        relayed = fleet.is_relayed(self._state, name)
        if port is not None and not relayed and not is_free(port):
            raise StartError(f"port {port} of {name} is in use by another process")

    def _environment(self) -> dict[str, str]:
        """Return an environment without settings of the user that components would read."""
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder.home)}


def up(wanted: ClusterOptions, report: Report = print) -> ControlPlane:
    """Start a control plane and return when all of it is ready."""
    folder = Folder(wanted.root.expanduser().resolve())
    folder.refuse_strangers()
    _refuse_nonsense(wanted)
    if wanted.real_nodes:
        fleet.require(folder, wanted.real_nodes, wanted.real_node)
    extras = NODE_PARTS if wanted.real_nodes else ()
    box = build(report, extras=extras, release=wanted.release)
    with folder.locked():
        _refuse_running(folder)
        folder.prepare()
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        resolution_s = fleet.METRIC_RESOLUTION_S if wanted.real_nodes else METRIC_RESOLUTION_S
        site = Site(box, folder, ports, resolution_s, wanted.pod_groups)
        plane = ControlPlane(site, _state(site, wanted))
        try:
            _start(plane, site, wanted, report)
        except BaseException:
            plane.close()
            plane.end_all()
            folder.clear()
            raise
    return plane


def attach(root: Path) -> ControlPlane:
    """Return the control plane of a folder."""
    folder = Folder(root.expanduser().resolve())
    state = load(folder)
    # Whatever release it runs: next to its etcd are its other binaries.
    box = Toolbox(Path(state.commands["etcd"][0]).parents[1])
    return ControlPlane(Site(box, folder, state.ports), state)


def _state(site: Site, wanted: ClusterOptions) -> State:
    chosen = [c for c in COMPONENTS if c.name not in wanted.left_out]
    state = State(dict(site.ports), {c.name: c.argv(site) for c in chosen})
    if wanted.real_nodes:
        fleet.plan(site, state, wanted.real_nodes, wanted.zones)
    save(state, site.folder)
    return state


def _start(plane: ControlPlane, site: Site, wanted: ClusterOptions, report: Report) -> None:
    identities.write_identities(site)
    plane.write_scheduler_config(wanted.scheduler_config, wanted.extender_url)
    names = [name for name in NAMES if name not in wanted.left_out]
    for name in plane.planned():
        plane.folder.log(name).write_bytes(b"")
    core = [name for name in names if name not in OPTIONAL]
    for name in core:
        _timed(report, f"{name} ready on {plane.url(name)}", functools.partial(plane.start, name))
    if wanted.real_nodes:
        # Before metrics-server, which is in the network of the nodes.
        fleet.prepare(site, plane.cgroups, wanted.real_nodes, wanted.real_node, report)
        plane.start(fleet.NETWORK)
    rest = names[len(core) :]
    for name in rest:
        plane.launch(name)
    for name in rest:
        _timed(
            report, f"{name} ready on {plane.url(name)}", functools.partial(plane.wait_ready, name)
        )
    _fill(plane, site, wanted, report)


def _fill(plane: ControlPlane, site: Site, wanted: ClusterOptions, report: Report) -> None:
    """Create nodes and register the metrics API."""
    if wanted.real_nodes:
        names = fleet.names(wanted.real_nodes)
        _timed(report, f"{len(names)} real nodes Ready", lambda: _start_real_nodes(plane, names))
    if wanted.nodes:
        manifests = nodes.manifests(wanted.nodes, wanted.node, zones=wanted.zones)
        _timed(report, f"{wanted.nodes} nodes Ready", lambda: plane.add_nodes(manifests))
    if "metrics-server" not in wanted.left_out:
        _timed(report, "metrics API available", lambda: _register_metrics(plane, site))


def _start_real_nodes(plane: ControlPlane, names: Sequence[str]) -> None:
    """Start containerd, give it the image, then start the kubelet, on all nodes at once."""
    plane.api.apply(fleet.permissions())
    for start in (plane.launch, plane.wait_ready):
        for name in names:
            start(fleet.containerd_of(name))
    for name in names:
        fleet.import_image(plane.folder, plane.command(fleet.containerd_of(name)))
    for start in (plane.launch, plane.wait_ready):
        for name in names:
            start(fleet.kubelet_of(name))


def _register_metrics(plane: ControlPlane, site: Site) -> None:
    ca = site.folder.certificate(CA).read_bytes()
    plane.api.apply(aggregation.manifests(site.ports["metrics-server"], ca))
    until(
        lambda: aggregation.available(plane.api),
        timeout_s=READY_TIMEOUT_S,
        what="the metrics API did not become available",
    )


def _timed(report: Report, what: str, step: Callable[[], None]) -> None:
    started = time.monotonic()
    step()
    report(f"{what} ({time.monotonic() - started:.1f} s)")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Delay an interruption: a process that is not recorded could not be stopped."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _refuse_nonsense(wanted: ClusterOptions) -> None:
    if not Path("/proc/self/stat").exists():
        raise ConfigError("the control plane needs Linux: it identifies processes by /proc")
    scheduler_config.localize(
        scheduler_config.read(wanted.scheduler_config),
        kubeconfig="",
        extender_url=wanted.extender_url,
    )
    unknown = sorted(wanted.without - set(OPTIONAL))
    if unknown:
        raise ConfigError(f"cannot leave out {unknown[0]}: choose from {', '.join(OPTIONAL)}")
    if wanted.nodes and wanted.real_nodes:
        raise ConfigError("a control plane has fake nodes or real nodes, not both")
    if wanted.nodes < 0 or wanted.zones < 0:
        raise ConfigError("the numbers of nodes and zones cannot be negative")


def _refuse_running(folder: Folder) -> None:
    """Reject a folder whose control plane runs; clean up after one that has ended."""
    if not folder.state.exists():
        return
    state = load(folder)
    if state.alive():
        raise FolderError(f"already running in {folder.root}: stop it with {stop_command(folder)}")
    fleet.end(state)
    folder.clear()


def stop_command(folder: Folder) -> str:
    """Return the command that stops the control plane of a folder, with this interpreter."""
    python, here = Path(sys.executable), Path.cwd()
    shown = python.relative_to(here) if python.is_relative_to(here) else python
    option = "" if folder.root == default_root().resolve() else f" --dir {folder.root}"
    return f"`{shown} -m controlplane down{option}`"


def _known(name: str) -> Component:
    if name not in NAMES:
        raise ConfigError(f"unknown component {name}: choose from {', '.join(NAMES)}")
    return by_name(name)
