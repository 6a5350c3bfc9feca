# SPDX-License-Identifier: Apache-2.0
"""The shell around a program: flags, configuration, logs, signals, exit codes.

A program is an `async def run(config, options, *, clock, announce)` that works until it is
canceled; everything a process needs beside that is here, once for all programs. Tests call
`run` in-process and never come through here.

    0       asked to stop (SIGTERM, SIGINT), drained; or done
    1       cannot run: no cluster, no permissions, port in use; one line says why
    2       invalid flags or configuration, or flags that contradict each other
    70      a bug; the traceback is in the log
    130/143 a second signal while draining: exits at once

The first signal cancels `run`, whose `finally` blocks are the draining. Handlers are set with
`signal.signal`, not on the loop, so that a second signal works even if the loop is stuck.
A thread cannot be canceled: one that does not end is left behind after a few seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import structlog
import uvloop

from common import __version__, logs
from common.api.contract import INSTALLED_IN
from common.clock import SYSTEM, Clock
from common.config import ConfigError, Configuration, differences, load_config
from common.config.values import namespace_name
from common.http_server import CannotListen
from common.kube.client import KubeClient, connect
from common.kube.errors import KubeError

DONE: Final = 0
CANNOT_WORK: Final = 1
NOT_UNDERSTOOD: Final = 2
BUG: Final = 70

_THREADS_S: Final = 2.0
"""How long threads may go on after everything else has ended."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class StartError(Exception):
    """A program cannot run; one line explains the reason."""


class FlagError(StartError):
    """Flags that contradict each other."""


EXPLAINED: Final = (StartError, ConfigError, CannotListen, KubeError)
"""Errors whose text is all that a person needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags that every program has; a program adds fields for its own."""

    kubeconfig: str | None = None
    context: str | None = None
    bind_address: str = "127.0.0.1"
    health_port: int = 0
    namespace: str | None = None
    """Where Leases are; None leaves it to the configuration."""


def connected(
    config: Configuration, options: Options, *, clock: Clock
) -> contextlib.AbstractAsyncContextManager[KubeClient]:
    """Log in to the cluster that the flags name, with the configured rate limit."""
    return connect(
        kubeconfig=options.kubeconfig,
        context=options.context,
        qps=config.client_connection.qps,
        burst=config.client_connection.burst,
        clock=clock,
    )


class Announce(Protocol):
    """Prints the addresses in use, once, as one line of JSON on stdout."""

    def __call__(self, **addresses: str) -> None: ...


C = TypeVar("C", bound=Configuration)
C_contra = TypeVar("C_contra", bound=Configuration, contravariant=True)
O = TypeVar("O", bound=Options)  # noqa: E741 - reads well beside C
O_contra = TypeVar("O_contra", bound=Options, contravariant=True)


class Run(Protocol[C_contra, O_contra]):
    """The program itself; returns when its work is done, or is canceled."""

    def __call__(
        self, config: C_contra, options: O_contra, *, clock: Clock, announce: Announce
    ) -> Awaitable[None]: ...


class HealthPort(NamedTuple):
    """The port of health checks and metrics."""

    number: int
    """Its default; 0 is a free one."""
    debug_page: str = ""
    """A further page; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Generic[C, O]):
    """What makes one program differ from another."""

    name: str
    summary: str
    configuration: type[C]
    options: type[O]
    health: HealthPort
    run: Run[C, O]
    add_flags: Callable[[argparse.ArgumentParser], None] | None = None
    """Adds flags whose `dest` are the fields that `options` has beyond `Options`."""


def main(program: Program[C, O], argv: Sequence[str] | None = None) -> int:
    """Run a program as a process and return its exit code."""
    flags = parser(program).parse_args(argv)
    logs.configure(flags.verbosity, flags.logging_format)
    shell = _Shell(program.name, as_json=flags.logging_format == "json")
    try:
        config = load_config(flags.config, program.configuration)
        # With --once only the answer counts, not what a daemon logs at startup.
        tell = log.debug if getattr(flags, "once", False) else log.info
        # The defaults are documented; what differs from them is what a reader looks for.
        changed = differences(program.configuration(), config)
        tell("starting", program=program.name, version=__version__, config=changed)
        return shell.run(program.run, config, _options(program.options, flags))
    except ConfigError as error:
        shell.explain(error)
        return NOT_UNDERSTOOD


def parser(program: Program[Any, Any]) -> argparse.ArgumentParser:
    """Return the flags that every program has, and its own after them."""
    made = argparse.ArgumentParser(
        prog=f"python -m {program.name}", description=program.summary, allow_abbrev=False
    )
    made.add_argument(
        "--config",
        metavar="F",
        help=f"configuration file (YAML, kind {program.configuration.__name__}); without it, "
        "the defaults",
    )
    made.add_argument(
        "--kubeconfig",
        metavar="K",
        help="path to the kubeconfig file (default: KUBECONFIG, the pod's service account, or "
        "~/.kube/config)",
    )
    made.add_argument(
        "--context", metavar="C", help="kubeconfig context to use (default: its current context)"
    )
    made.add_argument(
        "--namespace",
        metavar="N",
        type=_namespace,
        help="namespace of the Leases, the same for all of Evenkeel's programs; else the one in "
        f"the configuration, the pod's own, or {INSTALLED_IN}",
    )
    made.add_argument(
        "--bind-address",
        metavar="A",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 or :: for all, IPv4 and IPv6 (default: %(default)s)",
    )
    made.add_argument(
        "--health-port",
        metavar="H",
        type=port,
        default=program.health.number,
        help=f"port of {_pages(program)}; 0 is a free one (default: %(default)s)",
    )
    made.add_argument(
        "-v",
        dest="verbosity",
        metavar="N",
        type=_verbosity,
        default=0,
        help="how much to log: 0 what happens, 1 why as well, 2 libraries too, 3 everything "
        "(default: %(default)s)",
    )
    made.add_argument(
        "--logging-format",
        choices=("text", "json"),
        default="text",
        help="logs on stderr for people or for machines (default: %(default)s)",
    )
    made.add_argument("--version", action="version", version=f"{program.name} {__version__}")
    if program.add_flags is not None:
        program.add_flags(made)
    return made


def _pages(program: Program[Any, Any]) -> str:
    *pages, last = ("/livez", "/readyz", "/healthz", "/metrics", program.health.debug_page)
    return f"{', '.join(pages)} and {last}" if last else f"{', '.join(pages[:-1])} and {pages[-1]}"


def port(text: str) -> int:
    """Return a port number, 0 included; for flags."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: write 0 to 65535")
    return int(text)


def _namespace(text: str) -> str:
    try:
        return namespace_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _verbosity(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0")
    return int(text)


def _options(type_: type[O], flags: argparse.Namespace) -> O:
    return type_(**{field.name: getattr(flags, field.name) for field in dataclasses.fields(type_)})


class _Shell:
    """One run of a program in this process."""

    def __init__(self, name: str, *, as_json: bool) -> None:
        self._name = name
        self._as_json = as_json
        self._asked_to_stop = False
        self._work: asyncio.Task[None] | None = None

    def run(self, run: Run[C, O], config: C, options: O) -> int:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            threads = ThreadPoolExecutor(thread_name_prefix="worker")
            runner.get_loop().set_default_executor(threads)
            code = self._outcome(runner, run, config, options)
            # Before the runner's end and the interpreter's: both wait for threads for ever.
            if not _end(threads):
                log.warning("stopped while a thread is still running", program=self._name)
                _leave(code)
        if self._asked_to_stop and code == DONE:
            log.info("stopped", program=self._name)
        return code

    def _outcome(self, runner: asyncio.Runner, run: Run[C, O], config: C, options: O) -> int:
        try:
            runner.run(self._supervise(run, config, options))
        except KeyboardInterrupt:  # before the handlers were set
            return 128 + signal.SIGINT
        except (Exception, asyncio.CancelledError) as error:
            return self._exit_code(error)
        return DONE

    async def _supervise(self, run: Run[C, O], config: C, options: O) -> None:
        loop = asyncio.get_running_loop()
        self._work = asyncio.ensure_future(
            run(config, options, clock=SYSTEM, announce=self._announce)
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda caught, _: self._on_signal(caught, loop))
        try:
            await self._work
        except asyncio.CancelledError:
            if not self._asked_to_stop:
                raise

    def _on_signal(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        # May interrupt any line of the program, so it neither logs nor takes locks.
        if self._asked_to_stop:
            os._exit(128 + number)
        self._asked_to_stop = True
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._stop, number)

    def _stop(self, number: int) -> None:
        log.info("stopping", program=self._name, signal=signal.Signals(number).name)
        if self._work is not None:
            self._work.cancel()

    def _announce(self, **addresses: str) -> None:
        print(json.dumps({"program": self._name, **addresses}), flush=True)

    def _exit_code(self, error: BaseException) -> int:
        causes = list(leaves(error))
        if all(isinstance(cause, EXPLAINED) for cause in causes):
            log.debug("program failed", exc_info=error)
            for cause in causes:
                self.explain(cause)
            flags = all(isinstance(cause, FlagError) for cause in causes)
            return NOT_UNDERSTOOD if flags else CANNOT_WORK
        log.error("unexpected failure", program=self._name, exc_info=error)
        return BUG

    def explain(self, error: BaseException) -> None:
        """Tell the reason in one line, or one per problem."""
        problems = error.problems if isinstance(error, ConfigError) else (str(error),)
        for problem in problems:
            if self._as_json:
                log.error("program failed", program=self._name, error=problem)
            else:
                line = logs.one_line(problem) or type(error).__name__
                print(f"{self._name}: {line}", file=sys.stderr, flush=True)


def _end(threads: ThreadPoolExecutor) -> bool:
    """Let threads finish what they do; tell whether they have in time."""
    waiting = threading.Thread(
        target=threads.shutdown, kwargs={"cancel_futures": True}, daemon=True
    )
    waiting.start()
    waiting.join(_THREADS_S)
    return not waiting.is_alive()


def _leave(code: int) -> NoReturn:
    """End the process without waiting for anything but what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside groups of errors."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error
