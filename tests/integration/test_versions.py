# SPDX-License-Identifier: Apache-2.0
"""Every command that users run tells its version, and it is one version."""

from __future__ import annotations

import pytest

from common import __version__
from tests.support.stands.warm_python import run_program

COMMANDS = ("extender", "rebalancer", "simulator", "controlplane", "common", "common.fit")


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_tells_its_version(command: str) -> None:
    done = await run_program(command, "--version")
    assert (done.code, done.out) == (0, f"{command} {__version__}\n"), done.err
