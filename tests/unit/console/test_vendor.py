# SPDX-License-Identifier: Apache-2.0
"""Third-party browser files lie unmodified in the repository, each with version and license."""

from __future__ import annotations

import hashlib

import pytest

from console.vendor import MANIFEST, read_manifest, target
from tests.support.repository import ROOT

FOLDERS = [ROOT / "console" / "static" / "vendor", ROOT / "tests" / "browser" / "vendor"]


@pytest.mark.parametrize("folder", range(len(FOLDERS)))
def test_files_are_those_that_the_registry_published(folder: int) -> None:
    path = FOLDERS[folder]
    packages = read_manifest(path)
    listed = {
        target(path, package, name): sha
        for package in packages
        for name, sha in package.files.items()
    }
    assert {file for file in path.iterdir() if file.name != MANIFEST} == set(listed)
    for file, expected in listed.items():
        assert hashlib.sha256(file.read_bytes()).hexdigest() == expected, file
    for package in packages:
        assert package.license in {"MIT", "MPL-2.0"}
        assert any(name.startswith("LICENSE") for name in package.files)
