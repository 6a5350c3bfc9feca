# SPDX-License-Identifier: Apache-2.0
"""A host of the control plane, in a folder, on which an administrator types what a page says.

`/etc/kubernetes` is the folder's, sudo does nothing but run its command, and kubectl is that
of the control plane's binaries. Nothing else of the commands is changed; only kubeadm is not
here, and its commands are left out. kubeadm writes for root alone (mode 0600), so whatever
touches `/etc/kubernetes` without sudo is refused, whichever user runs the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from controlplane.build import toolbox
from controlplane.scheduler_config import SHIPPED
from tests.support.deploy.render import CONTROL_PLANE
from tests.support.docs.commands import command_lines
from tests.support.docs.pages import Page
from tests.support.repository import DEPLOY, DOCS

PAGE: Final = DOCS / "scheduler.md"
PATCH: Final = DEPLOY / CONTROL_PLANE / "static-pod-patch.yaml"

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


class Host:
    """The files of one host, and a shell on it."""

    def __init__(self, folder: Path, scheduler: Json) -> None:
        self.etc = folder / "etc-kubernetes"
        self._desk, self._bin = folder / "desk", folder / "bin"
        for made in (self.etc / "manifests", self._desk, self._bin):
            made.mkdir(parents=True)
        self._manifest.write_text(yaml.safe_dump(scheduler))
        self._manifest.chmod(0o600)
        self._tools()

    @property
    def manifest(self) -> Json:
        """The static pod that the kubelet would run."""
        found: Json = yaml.safe_load(self._manifest.read_text())
        return found

    def files(self) -> dict[str, tuple[int, bytes | None]]:
        """Return all that stands in /etc/kubernetes: modes, and what is in the files."""
        return {
            str(path.relative_to(self.etc)): (
                path.stat().st_mode,
                None if path.is_dir() else path.read_bytes(),
            )
            for path in self.etc.rglob("*")
        }

    def bring(self) -> None:
        """Copy to the host what the page wants there."""
        (self.etc / "scheduler-config.yaml").write_bytes(SHIPPED.read_bytes())
        (self._desk / PATCH.name).write_bytes(PATCH.read_bytes())

    def follow(self, title: str) -> None:
        """Type the commands of a section of the page, one after the other."""
        for line in commands_of(title):
            if not line.startswith("sudo kubeadm "):
                self._type(line)

    @property
    def _manifest(self) -> Path:
        return self.etc / "manifests" / "kube-scheduler.yaml"

    def _tools(self) -> None:
        (self._bin / "kubectl").symlink_to(toolbox().binary("kubectl"))
        sudo = self._bin / "sudo"
        sudo.write_text('#!/bin/sh\nexec "$@"\n')
        sudo.chmod(0o755)

    def _type(self, line: str) -> None:
        assert not forbidden(line), f"{line}: only root may touch {forbidden(line)}"
        done = subprocess.run(
            ["sh", "-c", line.replace("/etc/kubernetes", str(self.etc))],
            cwd=self._desk,
            env={"PATH": f"{self._bin}:{os.environ['PATH']}", "HOME": str(self._desk)},
            capture_output=True,
            text=True,
        )
        # That is how diff says that there are differences.
        fine = (1,) if line.startswith("sudo diff ") else (0,)
        assert done.returncode in fine, f"{line}: {done.stdout}{done.stderr}"


def commands_of(title: str) -> list[str]:
    """Return the commands of a section of the page."""
    page = Page(PAGE, _section(PAGE.read_text(), title))
    return [line for b in page.blocks for _, line in command_lines(b.language, b.text)]


def forbidden(line: str) -> list[str]:
    """Return the paths of a line that it touches without being root.

    sudo is for one command: neither for the next of a pipe, nor for where the shell writes.
    """
    touched = []
    for command in re.split(r"\|\|?|&&|;", line):
        run, *redirected = re.split(r"[<>]", command)
        touched += redirected if run.split()[:1] == ["sudo"] else [command]
    return [path for part in touched for path in re.findall(r"/etc/kubernetes\S*", part)]


def _section(text: str, title: str) -> str:
    """Return what stands below a heading, up to the next one of any level."""
    found: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            inside = line.strip("# \n") == title
        elif inside:
            found.append(line)
    assert found, f"no section {title}"
    return "".join(found)
