# SPDX-License-Identifier: Apache-2.0
"""Whether real nodes can run on this host, and if not, why not.

Every check is a function that returns its reason or nothing; the first reason is the answer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from controlplane.build import toolbox
from controlplane.real_nodes import cgroups, enter
from controlplane.real_nodes.settings import Machine

PROBE = Path(enter.__file__)
HIDDEN = ("/var", "/run")
"""A node has its own of these, so files of the host are not visible there."""

Check = Callable[[], str | None]


def obstacle() -> str | None:
    """Return why real nodes cannot run here; None if they can."""
    return next((reason for check in CHECKS if (reason := check())), None)


def is_root() -> str | None:
    user = os.geteuid()
    return None if user == 0 else f"real nodes need root, and this is user {user}"


def has_cgroup_v1() -> str | None:
    missing = cgroups.missing_controllers()
    if not missing:
        return None
    return f"real nodes need cgroup v1, and this host has no v1 hierarchy for {', '.join(missing)}"


def cgroups_are_writable() -> str | None:
    for base in cgroups.bases("probe"):
        if os.statvfs(base.parent).f_flag & os.ST_RDONLY:
            return f"real nodes need to make cgroups, and {base.parent} is read-only"
    return None


def namespaces_are_allowed() -> str | None:
    done = subprocess.run([sys.executable, PROBE, "--probe"], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return f"real nodes need namespaces and overlay mounts: {done.stderr.strip() or 'denied'}"


def has_ip() -> str | None:
    return None if shutil.which("ip") else "real nodes need the command ip (package iproute2)"


def can_build_runc() -> str | None:
    """Return what is missing to compile runc, the only part with C in it."""
    if toolbox().tool("runc").exists():
        return None
    if shutil.which("gcc") is None:
        return "real nodes need gcc to compile runc (package gcc)"
    asked = ["gcc", "-E", "-x", "c", "-"]
    text = "#include <seccomp.h>\n"
    done = subprocess.run(asked, input=text, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return "real nodes need the headers of libseccomp to compile runc (package libseccomp-dev)"


CHECKS: tuple[Check, ...] = (
    is_root,
    has_cgroup_v1,
    cgroups_are_writable,
    has_ip,
    namespaces_are_allowed,
    can_build_runc,
)


def hidden(*paths: Path) -> str | None:
    """Return why files in these folders cannot be used by nodes."""
    for path in paths:
        if any(path.resolve().is_relative_to(place) for place in HIDDEN):
            return (
                f"real nodes cannot see {path}: choose a folder outside of {' and '.join(HIDDEN)}"
            )
    return None


def machine() -> Machine:
    """Return the size of this machine as kubelets see it (MemTotal, like cAdvisor)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = next(line for line in lines if line.startswith("MemTotal:"))
    return Machine((os.cpu_count() or 1) * 1000, int(total.split()[1]) * 1024)
