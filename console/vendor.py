# SPDX-License-Identifier: Apache-2.0
"""Fetch third-party browser files by name: `python -m console.vendor FOLDER…` (`make vendor`).

A folder has a `vendor.json` that names packages of the npm registry, their versions and licenses,
and the sha256 of each file that is taken. Files lie in the repository unmodified; this command
proves it, and replaces them after a version was changed. It asks the registry that npm is
configured for, so no address is written down.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import msgspec

MANIFEST: Final = "vendor.json"


class Package(msgspec.Struct, kw_only=True):
    """A package of the registry, and what is taken from it."""

    name: str
    version: str
    license: str
    files: dict[str, str]
    """Path in the package → sha256; the file is called as it is there."""


class Mismatch(Exception):
    """A file is not the one that was reviewed."""


def read_manifest(folder: Path) -> list[Package]:
    """Return what a folder contains."""
    return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=list[Package])


def target(folder: Path, package: Package, path: str) -> Path:
    """Return where a file of a package lies; licenses carry the package's name."""
    name = Path(path).name
    return folder / (f"{package.name}.{name}" if name.startswith("LICENSE") else name)


def fetch(folder: Path) -> None:
    """Write the files of a folder; raise `Mismatch` where one differs from its sha256."""
    for package in read_manifest(folder):
        with tempfile.TemporaryDirectory() as scratch:
            contents = _download(package, Path(scratch))
        for path, expected in package.files.items():
            content = contents[f"package/{path}"]
            found = hashlib.sha256(content).hexdigest()
            if expected and found != expected:
                raise Mismatch(f"{package.name} {package.version}: {path} has sha256 {found}")
            target(folder, package, path).write_bytes(content)
            print(f"{package.name} {package.version} {path} {found}")


def _download(package: Package, scratch: Path) -> dict[str, bytes]:
    command = ["npm", "pack", "--json", "--silent", f"{package.name}@{package.version}"]
    done = subprocess.run(command, cwd=scratch, check=True, capture_output=True, text=True)
    archive = scratch / json.loads(done.stdout)[0]["filename"]
    wanted = {f"package/{path}" for path in package.files}
    with tarfile.open(archive) as packed:
        members = [member for member in packed.getmembers() if member.name in wanted]
        # Read into memory, never unpacked: no path of the archive is followed.
        return {m.name: file.read() for m in members if (file := packed.extractfile(m))}


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        fetch(Path(argument))
