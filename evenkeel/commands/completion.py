# SPDX-License-Identifier: Apache-2.0
"""`evenkeel completion`: the script that completes commands and names in a shell."""

from __future__ import annotations

import sys

import click

from evenkeel.completion import script


@click.command("completion", short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print what a shell has to source: `source <(evenkeel completion bash)`.

    Completes commands, options, and the names of pods, nodes and workloads.
    """
    sys.stdout.write(script(shell, "evenkeel"))
