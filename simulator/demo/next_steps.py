# SPDX-License-Identifier: Apache-2.0
"""Three things to try after the demo, as commands that can be pasted.

They need a cluster that keeps running, which is what `--keep` is for. Without kubectl the
commands use curl, which reaches the simulated cluster without credentials.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from common.api.contract import MAINTENANCE_LABEL

_STOP_EXTENDER = "  2. Stop the extender: pods are still scheduled, but none move to balance load"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDemo:
    """What keeps running, and how to reach it."""

    kubeconfig: Path
    """Beside the logs, in the folder of the demo."""
    server: str
    """URL of the API where it needs no credentials; empty otherwise."""
    kubectl: str
    """How kubectl is called here; empty where there is none."""
    node: str
    """A node that can be drained."""
    extender_pid: int
    rebalancer_pid: int
    cluster: str
    """What runs the cluster."""
    console: str = ""
    """Address of the console; empty where there is none."""
    command: str = ""
    """What runs `evenkeel`; empty where it is not installed."""
    extender_command: str = ""
    """What starts the extender again."""


def steps_without_keep(command: str) -> list[str]:
    """Return what to try, when nothing keeps running."""
    return [
        f"To try it yourself, keep the cluster running: {command} --keep",
        "  1. Drain a node: label it for maintenance and watch its pods leave",
        _STOP_EXTENDER,
        "  3. Look around with kubectl: nodes, pods, migrations",
        "The demo then prints the commands.",
    ]


def steps_while_running(running: RunningDemo) -> list[str]:
    """Return what to try, with the commands."""
    return [
        f"Still running: {running.cluster}, extender {running.extender_pid}, "
        f"rebalancer {running.rebalancer_pid} (process IDs)",
        f"  kubeconfig: {running.kubeconfig}",
        f"  logs:       {running.kubeconfig.parent}",
        *([f"  console:    {running.console}"] if running.console else []),
        "Try next, in another terminal:",
        *(_with_kubectl(running) if running.kubectl else _with_curl(running)),
        "Press Ctrl-C to stop everything.",
    ]


def _stop_extender(running: RunningDemo) -> list[str]:
    again = f"     {running.extender_command}"
    return [
        _STOP_EXTENDER,
        f"     kill {running.extender_pid}",
        *(["     and start it again", again] if running.extender_command else []),
    ]


def _ask(running: RunningDemo) -> list[str]:
    if not running.command:
        return []
    kubeconfig = shlex.quote(str(running.kubeconfig))
    return [
        "  4. Ask Evenkeel: status, nodes, why node, drain --preview, history",
        f"     {running.command} --kubeconfig {kubeconfig} why node {running.node}",
    ]


def _with_kubectl(running: RunningDemo) -> list[str]:
    kubectl = f"{running.kubectl} --kubeconfig {shlex.quote(str(running.kubeconfig))}"
    return [
        "  1. Drain a node",
        f"     {kubectl} label node {running.node} {MAINTENANCE_LABEL}=true",
        *_stop_extender(running),
        "  3. Look around",
        f"     {kubectl} get migrations",
        *_ask(running),
    ]


def _with_curl(running: RunningDemo) -> list[str]:
    label = f'{{"metadata":{{"labels":{{"{MAINTENANCE_LABEL}":"true"}}}}}}'
    patch = "curl -X PATCH -H 'Content-Type: application/merge-patch+json'"
    return [
        "  1. Drain a node",
        f"     {patch} -d '{label}' {running.server}/api/v1/nodes/{running.node}",
        *_stop_extender(running),
        "  3. Look around (kubectl would work too, but is not installed here)",
        f"     curl {running.server}/apis/evenkeel.io/v1alpha1/migrations",
        *_ask(running),
    ]
