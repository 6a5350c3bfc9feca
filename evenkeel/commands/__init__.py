# SPDX-License-Identifier: Apache-2.0
"""The commands, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenkeel.commands.apply import apply_command
from evenkeel.commands.completion import completion_command
from evenkeel.commands.convert_policy import convert_policy_command
from evenkeel.commands.doctor import doctor_command
from evenkeel.commands.drain import drain_command
from evenkeel.commands.migrations import history_command, migrations_command
from evenkeel.commands.nodes import nodes_command
from evenkeel.commands.pause import pause_command, resume_command
from evenkeel.commands.plan import plan_command
from evenkeel.commands.simulate import simulate_command
from evenkeel.commands.status import status_command
from evenkeel.commands.support_bundle import support_bundle_command
from evenkeel.commands.ui import ui_command
from evenkeel.commands.why import why_group

if TYPE_CHECKING:
    import click

COMMANDS: tuple[click.Command, ...] = (
    status_command,
    nodes_command,
    plan_command,
    apply_command,
    why_group,
    drain_command,
    migrations_command,
    history_command,
    pause_command,
    resume_command,
    doctor_command,
    ui_command,
    simulate_command,
    convert_policy_command,
    support_bundle_command,
    completion_command,
)


def register(group: click.Group) -> None:
    """Add all commands to a group."""
    for each in COMMANDS:
        group.add_command(each)
