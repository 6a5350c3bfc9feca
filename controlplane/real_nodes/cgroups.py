# SPDX-License-Identifier: Apache-2.0
"""The cgroups of real nodes: made under our own, read as counters, emptied and removed.

A node is one cgroup in every v1 hierarchy. They are below the cgroup in which this process is,
so limits that are set for it hold for the nodes too. Whatever a node has started is
in them, even a container whose containerd was killed, so `remove` finds it there.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from controlplane.errors import StartError
from controlplane.real_nodes.enter import hierarchies
from controlplane.waiting import until

NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer")
EMPTY_TIMEOUT_S = 30.0
CPU_SHARES = 20 * 1024
"""Twenty times those of one process: on a shared machine pods must get the CPU they use."""
CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


def bases(name: str) -> list[Path]:
    """Return the folder of a control plane's nodes in every v1 hierarchy."""
    own = _own_groups()
    return [
        Path(place + own.get(frozenset(controllers.split(",")), "/")) / name
        for kind, place, controllers in hierarchies()
        if kind == "cgroup"
    ]


def missing_controllers() -> list[str]:
    """Return the controllers that no v1 hierarchy of this host has."""
    mounted = {c for kind, _, found in hierarchies() if kind == "cgroup" for c in found.split(",")}
    return [name for name in NEEDED if name not in mounted]


def make(groups: Iterable[Path]) -> None:
    """Create cgroups with their parents."""
    for group in groups:
        for folder in (group.parent, group):
            folder.mkdir(exist_ok=True)
            _inherit_cpuset(folder)
        if (shares := group.parent / "cpu.shares").exists():
            shares.write_text(str(CPU_SHARES))


def find(groups: Sequence[Path], controller: str) -> Path:
    """Return the folder of a controller."""
    for group in groups:
        if any(controller in part.split(",") for part in group.parts):
            return group
    raise StartError(f"no cgroup hierarchy has the controller {controller}")


def cpu_ns(group: Path) -> int:
    """Return the CPU time that a cgroup has used since its creation, as the kernel counts it."""
    return int((group / "cpuacct.usage").read_text())


def remove(groups: Sequence[Path]) -> None:
    """Kill what runs in cgroups and remove them; they need not exist."""
    for group in groups:
        if group.exists():
            until(
                lambda group=group: _is_empty(group),  # type: ignore[misc] # bound per turn
                timeout_s=EMPTY_TIMEOUT_S,
                what=f"processes in {group} did not end",
            )
            for folder in _folders(group):
                with contextlib.suppress(FileNotFoundError):
                    folder.rmdir()


def _is_empty(group: Path) -> bool:
    """Kill every process below a cgroup; return whether there was none."""
    found = [(folder, pid) for folder in _folders(group) for pid in _members(folder)]
    for folder, pid in found:
        _kill(folder, pid)
    return not found


def _kill(folder: Path, pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Checked again: the pid may be another process's by now, but not while it is open.
        if pid in _members(folder):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(fd)


def _members(folder: Path) -> list[int]:
    try:
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _folders(group: Path) -> list[Path]:
    """Return a cgroup with those below it, the deepest first."""
    return [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]


def _inherit_cpuset(folder: Path) -> None:
    """Fill what a new cpuset leaves empty; no process can be in an empty one."""
    for name in CPUSET_FILES:
        file = folder / name
        if file.exists() and not file.read_text().strip():
            file.write_text((folder.parent / name).read_text())


def _own_groups() -> dict[frozenset[str], str]:
    """Return our own cgroup by the controllers of its hierarchy."""
    rows = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return {frozenset(controllers.split(",")): path for _, controllers, path in rows}
