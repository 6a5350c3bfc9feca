"""Three things to try once the demo is over, as commands that work when pasted.

They need a cluster that stays, which is what `--keep` is for. Where there is no kubectl the
same is said with curl, which reaches the simulated cluster without a login.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from common.contract import MAINTENANCE_LABEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is left running, and how to reach it."""

    kubeconfig: Path
    server: str
    """Where the API answers without a login; empty where it asks for one."""
    kubectl: str
    """How kubectl is called here; empty where there is none."""
    node: str
    """A node that could be emptied."""
    extender_pid: int
    rebalancer_pid: int
    cluster: str
    """Who runs the cluster, in words."""
    logs: Path


def without_keeping(command: str) -> list[str]:
    """Say what to try when nothing stays."""
    return [
        f"To try next, have the cluster stay: {command} --keep",
        "  1. empty a node: label it for maintenance and watch its pods leave",
        "  2. kill the extender: pods are still placed, and nothing moves for load",
        "  3. look around with kubectl: nodes, pods, migrations",
        "The commands are printed then.",
    ]


def while_kept(kept: Kept) -> list[str]:
    """Say what to try, with commands."""
    return [
        f"It stays: {kept.cluster}; extender {kept.extender_pid}, "
        f"rebalancer {kept.rebalancer_pid} (process ids)",
        f"  kubeconfig: {kept.kubeconfig}",
        f"  logs:       {kept.logs}",
        "Try next, in another terminal:",
        *(_with_kubectl(kept) if kept.kubectl else _with_curl(kept)),
        "Ctrl-C ends all of it.",
    ]


def _with_kubectl(kept: Kept) -> list[str]:
    kubectl = f"{kept.kubectl} --kubeconfig {shlex.quote(str(kept.kubeconfig))}"
    return [
        "  1. empty a node",
        f"     {kubectl} label node {kept.node} {MAINTENANCE_LABEL}=true",
        "  2. kill the extender: pods are still placed, and nothing moves for load",
        f"     kill {kept.extender_pid}",
        "  3. look around",
        f"     {kubectl} get migrations",
    ]


def _with_curl(kept: Kept) -> list[str]:
    label = f'{{"metadata":{{"labels":{{"{MAINTENANCE_LABEL}":"true"}}}}}}'
    patch = "curl -X PATCH -H 'Content-Type: application/merge-patch+json'"
    return [
        "  1. empty a node",
        f"     {patch} -d '{label}' {kept.server}/api/v1/nodes/{kept.node}",
        "  2. kill the extender: pods are still placed, and nothing moves for load",
        f"     kill {kept.extender_pid}",
        "  3. look around (kubectl is not installed here; it would work as well)",
        f"     curl {kept.server}/apis/evenkeel.io/v1alpha1/migrations",
    ]
