# SPDX-License-Identifier: Apache-2.0
"""The command line of the control plane."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from controlplane import kubeconfig, nodes
from controlplane.build import NODE_PARTS, TOOLS, build, missing_parts, toolbox
from controlplane.cluster import (
    OPTIONAL,
    ClusterOptions,
    ComponentStatus,
    Condition,
    attach,
    stop_command,
    up,
)
from controlplane.errors import ControlPlaneError
from controlplane.folder import default_root
from controlplane.nodes import NodeSpec
from controlplane.real_nodes import host
from controlplane.real_nodes.settings import RealNodeSpec
from controlplane.releases import CHOICE, DEFAULT, RELEASES, Release, chosen_release, find_release
from controlplane.scheduler_config import SHIPPED

INTERRUPTED = 130
FAKE_NODES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    options = _parser().parse_args(arguments)
    # SIGINT too: a shell starts background jobs with SIGINT ignored, and Python keeps that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return int(options.run(options))
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _build(options: argparse.Namespace) -> int:
    reason = host.obstacle() if options.real_nodes else None
    if reason:
        _say(f"without real nodes: {reason}")
    nodes = NODE_PARTS if options.real_nodes and not reason else ()
    extras = (*TOOLS, *nodes)
    if options.check:
        absent = missing_parts(toolbox(_release(options)), extras)
        _say(f"not built: {', '.join(absent)}" if absent else "built")
        return 1 if absent else 0
    box = build(_say, extras=extras, release=_release(options))
    _say(f"built: {box.root}")
    return 0


def _up(options: argparse.Namespace) -> int:
    if options.kubeconfig_out:
        # Checked before the build, which takes minutes.
        kubeconfig.check_overwrite(options.kubeconfig_out)
        options.kubeconfig_out.parent.mkdir(parents=True, exist_ok=True)
    plane = up(
        ClusterOptions(
            root=options.dir,
            nodes=_fake_nodes(options),
            zones=options.zones,
            node=NodeSpec(cpu=options.cpu or nodes.CPU, memory=options.memory or nodes.MEMORY),
            scheduler_config=options.scheduler_config,
            without=frozenset(options.without),
            real_nodes=options.real_nodes,
            real_node=_real_node(options),
            release=_release(options),
            pod_groups=options.pod_groups,
        ),
        _say,
    )
    plane.close()
    path = plane.kubeconfig
    if options.kubeconfig_out:
        path = options.kubeconfig_out.absolute()
        kubeconfig.write(path, plane.kubeconfig.read_text())
    _say(f"kubeconfig: {path}")
    _say(f"kubectl:    {plane.kubectl} --kubeconfig {shlex.quote(str(path))}")
    _say(f"logs:       {plane.folder.logs}")
    _say(f"stop it:    {stop_command(plane.folder)}")
    return 0


def _fake_nodes(options: argparse.Namespace) -> int:
    if options.nodes is None:
        return 0 if options.real_nodes else FAKE_NODES
    return int(options.nodes)


def _real_node(options: argparse.Namespace) -> RealNodeSpec:
    spec = RealNodeSpec()
    cpu = nodes.milli(options.cpu) if options.cpu else spec.cpu_milli
    memory = nodes.bytes_of(options.memory) if options.memory else spec.memory_bytes
    return RealNodeSpec(cpu, memory)


def _down(options: argparse.Namespace) -> int:
    plane = attach(options.dir)
    plane.down()
    _say(f"stopped; the logs are kept in {plane.folder.logs}")
    return 0


def _status(options: argparse.Namespace) -> int:
    plane = attach(options.dir)
    components = plane.status()
    plane.close()
    _say(f"server:     {plane.server}")
    _say(f"kubeconfig: {plane.kubeconfig}")
    for component in components:
        _say(_line(component))
    return 0 if all(c.condition is Condition.READY for c in components) else 1


def _line(status: ComponentStatus) -> str:
    pid = status.pid or "-"
    return (
        f"{status.name:<24} {status.condition.value:<18} pid {pid:<8} {status.address:<16} "
        f"{status.log}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controlplane",
        description="Run a real Kubernetes control plane on loopback, without containers.",
    )
    text = f"controlplane {version('evenkeel-kubernetes')}"
    parser.add_argument("--version", action="version", version=text)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    made = _add(commands, "build", _build, "compile the missing binaries from pinned Go modules")
    _add_version(made)
    made.add_argument(
        "--real-nodes",
        action="store_true",
        help="also kubelet, containerd and runc, where this host can run them",
    )
    made.add_argument(
        "--check",
        action="store_true",
        help="compile nothing; say what is missing, and exit with 1 if anything is",
    )
    _add_up_options(_add(commands, "up", _up, "start a control plane; return when it is ready"))
    for name, run, text in (
        ("down", _down, "stop exactly the processes that `up` started"),
        ("status", _status, "show every component; exit with 1 unless all are ready"),
    ):
        _add_dir(_add(commands, name, run, text))
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.set_defaults(run=run)
    return command


def _add_up_options(command: argparse.ArgumentParser) -> None:
    _add_dir(command)
    _add_version(command)
    add = command.add_argument
    add(
        "--nodes",
        type=_count,
        metavar="N",
        help=f"fake nodes to create (default: {FAKE_NODES}, none beside real ones)",
    )
    add(
        "--real-nodes",
        type=_count,
        default=0,
        metavar="N",
        help="nodes with a real kubelet, containerd and runc; needs root (default: %(default)s)",
    )
    add(
        "--zones",
        type=_count,
        default=0,
        metavar="Z",
        help="assign the nodes to Z zones in turn; 0 for no zones (default: %(default)s)",
    )
    add("--cpu", help=f"CPU of each node (default: {nodes.CPU}; of a real one 500m)")
    add("--memory", help=f"memory of each node (default: {nodes.MEMORY}; of a real one 2Gi)")
    add(
        "--scheduler-config",
        type=Path,
        default=SHIPPED,
        metavar="F",
        help="configuration of kube-scheduler; only its kubeconfig path is replaced "
        "(default: the scheduler-config.yaml that users copy)",
    )
    add(
        "--kubeconfig-out",
        type=Path,
        metavar="F",
        help="write the kubeconfig of the administrator also to F",
    )
    add(
        "--without",
        type=_names,
        default=(),
        metavar="NAME,…",
        help=f"components to leave out: {', '.join(OPTIONAL)} (default: none)",
    )
    add(
        "--pod-groups",
        action="store_true",
        help="turn on the gates GenericWorkload and GangScheduling, and serve their API",
    )


def _add_dir(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dir",
        type=Path,
        default=default_root(),
        metavar="D",
        help="folder of the control plane (default: %(default)s)",
    )


def _add_version(command: argparse.ArgumentParser) -> None:
    known = ", ".join(release.kubernetes for release in RELEASES)
    command.add_argument(
        "--kubernetes-version",
        metavar="V",
        help=f"another release: {known}; the patch number may be left out (default: {CHOICE}, "
        f"or {DEFAULT.kubernetes})",
    )


def _release(options: argparse.Namespace) -> Release:
    named = options.kubernetes_version
    return find_release(named) if named else chosen_release()


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _say(line: str) -> None:
    print(line, flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C, so that no half-started control plane stays."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
