# SPDX-License-Identifier: Apache-2.0
"""The folder of one control plane: its paths and its lock.

Only a folder that is empty or that an earlier control plane left behind is used, since
`clear` deletes its content. Starting or stopping a control plane requires its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controlplane.errors import FolderError

LEFT_BEHIND = frozenset({"logs", ".lock"})


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths inside the folder of a control plane."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def home(self) -> Path:
        """The home folder of the components, so that they do not use that of the user."""
        return self.root / "home"

    @property
    def kubeconfigs(self) -> Path:
        return self.root / "kubeconfigs"

    @property
    def kubeconfig(self) -> Path:
        return self.kubeconfigs / "admin.kubeconfig"

    @property
    def nodes(self) -> Path:
        """The files of real nodes."""
        return self.root / "nodes"

    @property
    def scheduler_config(self) -> Path:
        return self.root / "scheduler-config.yaml"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def certificate(self, name: str) -> Path:
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.pki / f"{name}.key"

    def kubeconfig_of(self, component: str) -> Path:
        return self.kubeconfigs / f"{component}.kubeconfig"

    def prepare(self) -> None:
        """Create the subfolders, readable only by their owner."""
        for path in (self.logs, self.pki, self.etcd, self.kubeconfigs, self.home):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o700)

    def clear(self) -> None:
        """Delete everything but the logs."""
        for path in (self.pki, self.etcd, self.kubeconfigs, self.home, self.nodes):
            shutil.rmtree(path, ignore_errors=True)
        # The state last, so that an interrupted `clear` can be repeated.
        for path in (self.scheduler_config, self.state.with_suffix(".new"), self.state):
            path.unlink(missing_ok=True)

    def refuse_strangers(self) -> None:
        """Reject a folder with files that are not of a control plane."""
        if self.state.exists() or not self.root.exists():
            return
        if not self.root.is_dir():
            raise FolderError(f"{self.root} is not a folder")
        strangers = sorted({path.name for path in self.root.iterdir()} - LEFT_BEHIND)
        if strangers:
            raise FolderError(
                f"{self.root} holds other things ({strangers[0]}): give an empty folder with --dir"
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; fail at once when another process has the lock."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / ".lock").open("w")
        except OSError as error:
            raise FolderError(f"cannot use {self.root}: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderError(f"another `up` or `down` is running in {self.root}") from None
            yield


def default_root() -> Path:
    """Return the default folder."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "evenkeel" / "controlplane"
