# SPDX-License-Identifier: Apache-2.0
"""Every command that users run tells its version, and it is one version."""

from __future__ import annotations

import subprocess
import sys

import pytest

from common import __version__

COMMANDS = ("extender", "rebalancer", "simulator", "controlplane", "common", "common.fit")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_tells_its_version(command: str) -> None:
    asked = [sys.executable, "-m", command, "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{command} {__version__}\n"
