# SPDX-License-Identifier: Apache-2.0
"""Become a process of a node, then run a program there.

Run as a script, with the standard library only. The first process of a node makes its
namespaces; the others join them. The node's cgroup decides which is the first: a process that
is in it already has the namespaces. The order matters: a cgroup namespace is rooted at the
cgroup in which the process is when it makes the namespace.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

CLONE_NEWNS, CLONE_NEWCGROUP = 0x00020000, 0x02000000
CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
MOUNT_OPTIONS = ("rw", "ro", "xattr", "release_agent", "clone_children", "noprefix", "nsdelegate")
OF_A_NODE = (("mnt", CLONE_NEWNS), ("cgroup", CLONE_NEWCGROUP), ("uts", CLONE_NEWUTS))

MOUNTS = Path("/proc/self/mountinfo")

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Enter as the flags say, and become the program; does not return."""
    options = _parser().parse_args(arguments)
    if options.probe:
        probe()
        return
    if options.network:
        join(Path(options.network), (("net", CLONE_NEWNET),))
    before = members(Path(options.cgroup[0])) if options.cgroup else []
    for group in options.cgroup:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    if before:
        join(Path(options.cgroup[0]), OF_A_NODE)
    elif options.cgroup:
        make(Path(options.var), options.hostname)
    found = f"{options.path}:{os.environ.get('PATH', '')}" if options.path else os.environ["PATH"]
    os.execve(options.argv[0], options.argv, {**os.environ, "PATH": found})


def members(group: Path) -> list[int]:
    """Return the processes that are directly in a cgroup."""
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def join(group: Path, kinds: Sequence[tuple[str, int]]) -> None:
    """Join the namespaces of a process in a cgroup."""
    for pid in members(group):
        if pid == os.getpid():
            continue
        try:
            files = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind, _ in kinds]
        except OSError:
            continue  # it has just ended
        for file, (_, flag) in zip(files, kinds, strict=True):
            setns(file, flag)
            os.close(file)
        return
    raise SystemExit(f"no process is in {group}")


def make(var: Path, hostname: str) -> None:
    """Make the namespaces of a node; its mounts exist nowhere else."""
    unshare(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount_cgroups()
    mount(str(var), "/var", None, MS_BIND | MS_REC)
    mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
    _check(_libc.sethostname(hostname.encode(), len(hostname)), "sethostname")


def _mount_cgroups() -> None:
    """Mount every v1 hierarchy again: its root is then the cgroup of the node."""
    for kind, place, controllers in hierarchies():
        _check(_libc.umount2(place.encode(), MNT_DETACH), f"umount {place}")
        # With a mounted v2 hierarchy runc would expect all cgroups there too.
        if kind == "cgroup":
            mount("cgroup", place, "cgroup", 0, controllers)


def hierarchies() -> list[tuple[str, str, str]]:
    """Return file system, mount point and controllers of every mounted hierarchy."""
    found: list[tuple[str, str, str]] = []
    for line in MOUNTS.read_text().splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ")
        if kind in ("cgroup", "cgroup2"):
            names = [o for o in options.split(",") if not o.startswith(MOUNT_OPTIONS)]
            found.append((kind, head.split(" ")[4], ",".join(names)))
    return found


def probe() -> None:
    """Try what a node needs of the kernel; raise OSError where it is denied."""
    unshare(CLONE_NEWNET)
    unshare(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
    for name in ("lower", "upper", "work", "merged"):
        Path("/run", name).mkdir()
    layers = "lowerdir=/run/lower,upperdir=/run/upper,workdir=/run/work"
    mount("overlay", "/run/merged", "overlay", 0, layers)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(file: int, flag: int) -> None:
    _check(_libc.setns(file, flag), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    encoded = None if kind is None else kind.encode()
    done = _libc.mount(source.encode(), target.encode(), encoded, flags, data.encode())
    _check(done, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--network", default="")
    parser.add_argument("--cgroup", action="append", default=[])
    parser.add_argument("--var", default="")
    parser.add_argument("--hostname", default="")
    parser.add_argument("--path", default="")
    parser.add_argument("argv", nargs="*")
    return parser


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.strerror}")
