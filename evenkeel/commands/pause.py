# SPDX-License-Identifier: Apache-2.0
"""`evenkeel pause` and `evenkeel resume`: stop all evictions at once, and let them go on."""

from __future__ import annotations

import getpass

import click
from rich.text import Text

from common.cluster.storage import PauseRecord
from common.kube.api import KubeApi
from common.visible import visible
from evenkeel.output import emit
from evenkeel.pause import read_pause, remove_pause, write_pause
from evenkeel.session import connected, namespace_of, whoami
from evenkeel.shell import SPAN, Call, command


@click.command("pause", short_help="Stop all evictions at once.")
@click.option("--for", "for_s", type=SPAN, help="Ends by itself after this time: 30m, 2h.")
@click.option("--reason", "why", default="", metavar="WORDS", help="Why, for others to read.")
@command
async def pause_command(call: Call, *, for_s: float | None, why: str) -> None:
    """Stop all evictions at once, also of drains that are under way.

    Creates the ConfigMap evenkeel-pause, which every rebalancer watches. Pods that were evicted
    already still get their replacements.
    """
    async with connected(call.target, clock=call.clock) as client:
        namespace, now_s = await namespace_of(client, call.target), call.clock.now()
        made = PauseRecord(
            namespace=namespace,
            by=await _who(client),
            why=why,
            since_s=now_s,
            until_s=None if for_s is None else now_s + for_s,
        )
        await write_pause(client, namespace, made)
    emit("Pause", {"paused": True, **_shown(made)}, call.output, lambda: _page(made))


@click.command("resume", short_help="Let evictions go on.")
@command
async def resume_command(call: Call) -> None:
    """Let evictions go on: removes the ConfigMap evenkeel-pause."""
    async with connected(call.target, clock=call.clock) as client:
        namespace = await namespace_of(client, call.target)
        before = (await read_pause(client, namespace)).pause
        there = await remove_pause(client, namespace)
    was = f"; it was paused {before.words}" if before is not None else ""
    words = f"Resumed{was}." if there else "It was not paused."
    emit("Pause", {"paused": False, "wasPaused": there}, call.output, lambda: Text(visible(words)))


async def _who(client: KubeApi) -> str:
    """Return the name that the cluster knows the caller by, or else that of the machine."""
    found = await whoami(client)
    if found:
        return found
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _shown(pause: PauseRecord) -> dict[str, object]:
    return {
        "namespace": pause.namespace,
        "by": pause.by,
        "why": pause.why,
        "untilSeconds": pause.until_s,
    }


def _page(pause: PauseRecord) -> Text:
    end = "" if pause.until_s is not None else "; evenkeel resume lets it go on"
    return Text(visible(f"Moves are paused {pause.words}{end}."))
