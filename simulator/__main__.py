# SPDX-License-Identifier: Apache-2.0
"""`python -m simulator serve | demo`: a simulated Kubernetes cluster."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence

from common import __version__, logs
from common.cli import port
from common.config import ConfigError
from simulator import serve
from simulator.demo import demo
from simulator.demo.command import SCENARIO
from simulator.process import FAILED, USAGE_ERROR, CommandError, run
from simulator.scenarios import names


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    flags = parser().parse_args(argv)
    logs.configure(flags.verbosity, "text")
    try:
        return int(flags.command(flags))
    except ConfigError as error:
        for problem in error.problems:
            print(f"simulator: {logs.one_line(problem)}", file=sys.stderr)
        return USAGE_ERROR
    except CommandError as error:
        print(f"simulator: {logs.one_line(str(error))}", file=sys.stderr)
        return FAILED


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    made = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Simulate a whole Kubernetes cluster in one process, for tests and demos.",
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"simulator {__version__}")
    commands = made.add_subparsers(required=True, metavar="serve | demo")
    _add_serve(commands)
    _add_demo(commands)
    return made


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    made = commands.add_parser(
        "serve",
        help="run a simulated cluster until it is stopped",
        description="Run a simulated cluster until it is stopped. Prints the path of the "
        "kubeconfig and the URL of the API, then `ready`.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--nodes",
        metavar="N",
        type=_count,
        help="number of nodes, to which a scenario is scaled (default: 3, or the scenario's)",
    )
    made.add_argument(
        "--port",
        metavar="P",
        type=port,
        default=0,
        help="port of the API; 0 picks a free one (default: %(default)s)",
    )
    made.add_argument("--scheduler-config", metavar="F", help="a KubeSchedulerConfiguration file")
    made.add_argument(
        "--kubeconfig-out",
        metavar="F",
        help="where to write the kubeconfig (default: a temporary file)",
    )
    _add_common(made, speed=1.0, scenario="nodes without pods")
    made.set_defaults(command=lambda flags: run(serve.serve(flags)))


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    made = commands.add_parser(
        "demo",
        help="show how a cluster gets hot and Evenkeel levels it",
        description="Show how a cluster gets hot and Evenkeel levels it: as a live screen in a "
        "terminal, as lines elsewhere. Ends with a summary.",
        allow_abbrev=False,
    )
    made.add_argument("--keep", action="store_true", help="keep everything running afterwards")
    made.add_argument(
        "--json",
        action="store_true",
        help="progress to stderr, results as one JSON line to stdout",
    )
    made.add_argument(
        "--real",
        action="store_true",
        help="use a real control plane (needs Go)",
    )
    made.add_argument(
        "--longest",
        metavar="S",
        type=_number("a number of seconds", least=1, most=86_400),
        help="stop after this many seconds, level or not (default: 110; with --real 400, counted "
        "from the start of the control plane)",
    )
    made.add_argument("--record", metavar="F", help="file to write an animated SVG to")
    _add_common(made, speed=8.0, scenario=SCENARIO)
    made.set_defaults(command=demo)


def _add_common(made: argparse.ArgumentParser, *, speed: float, scenario: str) -> None:
    made.add_argument(
        "--seed",
        metavar="S",
        type=int,
        default=0,
        help="random seed; the same seed gives the same cluster (default: %(default)s)",
    )
    made.add_argument(
        "--scenario",
        metavar="S",
        help=f"{', '.join(names())}, or a file (default: {scenario})",
    )
    made.add_argument(
        "--speed",
        metavar="X",
        type=_number("a speed", least=0.001, most=10_000),
        default=speed,
        help="how much faster simulated durations pass (default: %(default)g)",
    )
    made.add_argument(
        "-v",
        dest="verbosity",
        metavar="N",
        type=int,
        default=0,
        help="log verbosity, 0 to 3 (default: %(default)s)",
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


def _number(what: str, *, least: float, most: float) -> Callable[[str], float]:
    """Return a parser of numbers within limits."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not least <= found <= most:
            allowed = f"must be between {least:g} and {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is not {what}: {allowed}")
        return found

    return read


if __name__ == "__main__":
    sys.exit(main())
