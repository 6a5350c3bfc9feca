# SPDX-License-Identifier: Apache-2.0
"""Completes commands and the names of pods, nodes and workloads, in a shell and for kubectl.

A completion asks the cluster with a short limit and never complains: without an answer there are
no names to offer.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem, ShellComplete

from common.clock import SYSTEM, within
from common.kube.api import KubeApi
from common.kube.resources import DAEMONSETS, DEPLOYMENTS, NODES, PODS, STATEFULSETS, Resource
from evenkeel.session import Target, connected

_PATIENCE_S: Final = 3.0
_PAGE: Final = 500
_MOST_PAGES: Final = 20
_NO_SPACE: Final = ":4"
"""kubectl's directive "no file completion" (ShellCompDirectiveNoFileComp of cobra)."""


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Item(msgspec.Struct):
    metadata: _Meta


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Names(msgspec.Struct):
    items: list[_Item] = []
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


def complete_nodes(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completed(context, incomplete, NODES)


def complete_pods(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completed(context, incomplete, PODS)


def complete_workloads(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completed(context, incomplete, DEPLOYMENTS, STATEFULSETS, DAEMONSETS)


def _completed(
    context: click.Context, incomplete: str, *resources: Resource
) -> list[CompletionItem]:
    try:
        names = asyncio.run(within(SYSTEM, _PATIENCE_S, _names(_target(context), resources)))
    except Exception:  # a completion never complains
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _target(context: click.Context) -> Target:
    """Return the cluster that the flags name; click has parsed them, but run no command."""
    given = context.find_root().params
    return Target(
        kubeconfig=given.get("kubeconfig"), context=given.get("context"), timeout_s=_PATIENCE_S
    )


async def _names(target: Target, resources: Sequence[Resource]) -> set[str]:
    async with connected(target, clock=SYSTEM) as client:
        found = await asyncio.gather(*(_listed(client, each) for each in resources))
    return set().union(*found)


async def _listed(client: KubeApi, resource: Resource) -> set[str]:
    found: set[str] = set()
    token = ""
    for _ in range(_MOST_PAGES):
        params: dict[str, str | int] = {"limit": _PAGE}
        if token:
            params["continue"] = token
        page = msgspec.json.decode(await client.get(resource.path(), params=params), type=_Names)
        found |= {
            f"{item.metadata.namespace}/{item.metadata.name}"
            if resource.namespaced
            else item.metadata.name
            for item in page.items
        }
        token = page.metadata.continue_
        if not token:
            break
    return found


def complete_for_kubectl(arguments: list[str]) -> int:
    """Print completions as kubectl expects them of a plugin: one a line, then a directive.

    See pkg/cmd/plugin/plugin_completion.go of kubectl.
    """
    from evenkeel import commands
    from evenkeel.shell import cli

    commands.register(cli)
    *before, incomplete = arguments or [""]
    with redirect_stderr(io.StringIO()):
        found = ShellComplete(cli, {}, "evenkeel", "_EVENKEEL_COMPLETE").get_completions(
            before, incomplete
        )
    for item in found:
        sys.stdout.write(f"{item.value}\t{item.help}\n" if item.help else f"{item.value}\n")
    sys.stdout.write(f"{_NO_SPACE}\n")
    return 0


def script(shell: str, name: str) -> str:
    """Return what a shell has to source."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"{shell} is not known: use bash, zsh or fish")
    made: Any = found(click.Command(name), {}, name, f"_{name.replace('-', '_').upper()}_COMPLETE")
    # The class of bash asks the installed bash for its version, and complains on stderr.
    with redirect_stderr(io.StringIO()):
        text: str = made.source()
    return text if text.endswith("\n") else text + os.linesep
