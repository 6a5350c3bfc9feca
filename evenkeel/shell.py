# SPDX-License-Identifier: Apache-2.0
"""The shell around the commands: flags, logs, errors and exit codes.

A command is an `async def` that takes a `Call` and returns an exit code or nothing. Whatever it
raises becomes one line on stderr and an exit code (`evenkeel.errors`); Ctrl-C ends it quietly.
"""

from __future__ import annotations

import asyncio
import functools
import io
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, ParamSpec, TextIO, cast

import click

from common import __version__, logs
from common.cli import EXPLAINED, leaves
from common.clock import SYSTEM, Clock
from common.config import ConfigError
from common.config.durations import Duration
from evenkeel.errors import (
    ANSWER_IS_NO,
    BUG,
    CANNOT_WORK,
    DONE,
    INTERRUPTED,
    NOT_UNDERSTOOD,
    Refused,
    UsageError,
)
from evenkeel.output import Output
from evenkeel.progress import Progress
from evenkeel.session import Target

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What every command gets."""

    target: Target
    output: Output = Output.TEXT
    clock: Clock = SYSTEM
    progress: Progress = field(default_factory=Progress)


Command = Callable[Concatenate[Call, P], Awaitable[int | None]]

_OUTPUT: Final = click.option(
    "-o",
    "--output",
    type=click.Choice([each.value for each in Output]),
    default=Output.TEXT.value,
    show_default=True,
    help="For people, with more columns, or for programs.",
)


def command(work: Command[P]) -> Callable[..., None]:
    """Turn an async function into the callback of a click command."""

    @_OUTPUT
    @click.pass_context
    @functools.wraps(work)
    def run_it(context: click.Context, /, *args: Any, output: str, **options: Any) -> None:
        call = Call(target=context.obj, output=Output(output))

        async def awaited() -> int | None:
            return await work(call, *args, **options)

        context.exit(asyncio.run(awaited()) or DONE)

    return run_it


class SpanType(click.ParamType[float]):
    """A length of time as the configuration writes it: `90s`, `5m`, `2h`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return value if isinstance(value, float) else Duration(value).seconds
        except ValueError as error:
            self.fail(str(error), param, ctx)


SPAN: Final = SpanType()


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 cannot be done, 2 not understood, 3 the answer is no, "
    "130 interrupted.",
)
@click.version_option(__version__, prog_name="evenkeel", message="%(prog)s %(version)s")
@click.option("--kubeconfig", metavar="F", help="Path to the kubeconfig file.")
@click.option("--context", metavar="C", help="Context of the kubeconfig to use.")
@click.option(
    "-n",
    "--namespace",
    metavar="N",
    help="Namespace that Evenkeel is installed in; found if it is.",
)
@click.option(
    "--config",
    metavar="F",
    help="Judge by this RebalancerConfiguration instead of the installed one.",
)
@click.option(
    "--timeout", type=SPAN, default="30s", show_default=True, help="How long to wait for answers."
)
@click.option("-v", "verbosity", count=True, help="Show logs; twice shows more.")
@click.pass_context
def cli(
    shell: click.Context,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    config: str | None,
    timeout: float,
    verbosity: int,
) -> None:
    """See what Evenkeel sees, ask it why, and tell it what to do.

    Reads with your kubeconfig and your permissions, and changes nothing unless the command says so.
    """
    _quiet(verbosity)
    shell.obj = Target(
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        config=config,
        timeout_s=timeout,
    )


class _Nowhere(io.TextIOBase):
    """Takes text and keeps none of it."""

    def write(self, text: str, /) -> int:
        return len(text)


def _quiet(verbosity: int) -> None:
    """Show no logs unless they are asked for: the answer says what matters."""
    stream = sys.stderr if verbosity else _Nowhere()
    logs.configure(max(0, verbosity - 1), "text", cast(TextIO, stream))


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    from evenkeel import commands

    commands.register(cli)
    try:
        # Outside its own mode click returns what `exit` was given.
        code = cli.main(arguments, prog_name=program_name(), standalone_mode=False)
    except BaseException as error:
        return _exit_code(error)
    return code if isinstance(code, int) else DONE


def program_name() -> str:
    """Return what a person types to run this command."""
    called = os.path.basename(sys.argv[0])
    if called.startswith("kubectl-"):
        return "kubectl evenkeel"
    return "python -m evenkeel" if called == "__main__.py" else "evenkeel"


def _exit_code(error: BaseException) -> int:
    """Explain what went wrong in a line, and return the exit code for it."""
    causes = list(leaves(error))
    first = causes[0]
    if isinstance(first, click.exceptions.Exit):
        return first.exit_code
    if isinstance(first, SystemExit):
        # How click ends a completion: a shell asks for one at every Tab.
        return first.code if isinstance(first.code, int) else BUG
    if isinstance(first, click.ClickException):
        first.show()
        return NOT_UNDERSTOOD
    if any(isinstance(each, KeyboardInterrupt | click.Abort) for each in causes):
        return INTERRUPTED
    if isinstance(first, BrokenPipeError):
        # The reader of the answer has seen enough; the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    if all(isinstance(each, EXPLAINED) for each in causes):
        return _explained(causes)
    traceback.print_exception(error)
    return BUG


def _wrapped(line: str) -> str:
    """Break a line between words where a terminal would break it anywhere; a pipe gets one."""
    if not sys.stderr.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)


def _explained(causes: list[BaseException]) -> int:
    for cause in causes:
        problems = cause.problems if isinstance(cause, ConfigError) else (str(cause),)
        for problem in problems:
            line = logs.one_line(problem) or type(cause).__name__
            print(_wrapped(f"evenkeel: {line}"), file=sys.stderr, flush=True)
    if all(isinstance(each, Refused) for each in causes):
        return ANSWER_IS_NO
    usage = all(isinstance(each, UsageError | ConfigError) for each in causes)
    return NOT_UNDERSTOOD if usage else CANNOT_WORK
