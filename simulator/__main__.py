"""`python -m simulator serve | demo`: a cluster without a cluster."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence

from common import __version__, logs
from common.config import ConfigError
from common.program import port
from simulator import serve
from simulator.demo import demo
from simulator.demo.command import SCENARIO
from simulator.process import CANNOT_WORK, NOT_UNDERSTOOD, CannotServe, run
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
        return NOT_UNDERSTOOD
    except CannotServe as error:
        print(f"simulator: {logs.one_line(str(error))}", file=sys.stderr)
        return CANNOT_WORK


def parser() -> argparse.ArgumentParser:
    """Return the flags of all commands."""
    made = argparse.ArgumentParser(
        prog="python -m simulator",
        description="A whole Kubernetes cluster in one process, for people and tests without one.",
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
        description="Run a simulated cluster until it is stopped. Prints where its API and its "
        "kubeconfig are, and then `ready`.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--nodes", metavar="N", type=_count, help="how many nodes (default: 3, or the scenario's)"
    )
    made.add_argument(
        "--port",
        metavar="P",
        type=port,
        default=0,
        help="port of the API; 0 is a free one (default: %(default)s)",
    )
    made.add_argument("--scheduler-config", metavar="F", help="a KubeSchedulerConfiguration")
    made.add_argument(
        "--kubeconfig-out", metavar="F", help="where to write the kubeconfig (default: a new file)"
    )
    _add_common(made, speed=1.0, scenario="nodes without pods")
    made.set_defaults(command=lambda flags: run(serve.serve(flags)))


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    made = commands.add_parser(
        "demo",
        help="show a cluster getting hot, and Evenkeel making it level",
        description="Show a cluster getting hot, and Evenkeel making it level: drawn in a "
        "terminal, lines elsewhere. Ends by itself with a summary.",
        allow_abbrev=False,
    )
    made.add_argument("--keep", action="store_true", help="leave everything running afterwards")
    made.add_argument(
        "--json", action="store_true", help="progress to stderr, one line of figures to stdout"
    )
    made.add_argument("--real", action="store_true", help="use a real control plane (needs Go)")
    made.add_argument(
        "--longest",
        metavar="S",
        type=_number("a number of seconds", least=1, most=86_400),
        help="end after so many seconds, level or not (default: 110; with --real 400, counted "
        "from when the control plane runs)",
    )
    made.add_argument("--record", metavar="F", help="make an SVG of it that plays")
    _add_common(made, speed=8.0, scenario=SCENARIO)
    made.set_defaults(command=demo)


def _add_common(made: argparse.ArgumentParser, *, speed: float, scenario: str) -> None:
    made.add_argument(
        "--seed",
        metavar="S",
        type=int,
        default=0,
        help="same seed, same cluster (default: %(default)s)",
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
        help="how much to log, 0 to 3 (default: %(default)s)",
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1")
    return int(text)


def _number(what: str, *, least: float, most: float) -> Callable[[str], float]:
    """Return a reader of numbers within limits."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not least <= found <= most:
            words = f"{text} is not {what}: write {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(words)
        return found

    return read


if __name__ == "__main__":
    sys.exit(main())
