# SPDX-License-Identifier: Apache-2.0
"""The smallest program in our shell: serves its health port and drains as it is told to."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import threading
from dataclasses import dataclass

from common.cli import Announce, FlagError, HealthPort, Options, Program, StartError, main
from common.clock import Clock
from common.config import ExtenderConfiguration
from common.health import Health
from common.kube.errors import KubeconfigError, Unauthorized, Unreachable, Untrusted
from common.metrics import Metrics

FAILURES = {
    "kubeconfig": KubeconfigError("no cluster: tried --kubeconfig x,\n  KUBECONFIG (not set)"),
    "unreachable": Unreachable("https://127.0.0.1:1 refused the connection"),
    "untrusted": Untrusted("the certificate of https://127.0.0.1:1 is not signed by our CA"),
    "unauthorized": Unauthorized(401, "Bearer sUp3r-s3cret.Token_of-length is not accepted"),
    "start": StartError("the moon is in the wrong phase"),
    "silent": StartError(),
    "flags": FlagError("--this needs --that"),
    "bug": ZeroDivisionError("one too many"),
    "cancelled": asyncio.CancelledError(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyOptions(Options):
    fail: str | None = None
    grouped: bool = False
    drain: str = "clean"
    once: bool = False


async def run(
    config: ExtenderConfiguration, options: TinyOptions, *, clock: Clock, announce: Announce
) -> None:
    if options.fail:
        raise failure(options)
    health = Health(Metrics("tiny"))
    if options.drain == "thread":
        stuck = asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
        stuck.add_done_callback(lambda _: None)
    health.ready("threshold", lambda: None if config.cpu_threshold > 50 else "too low")
    async with health.serving(options.bind_address, options.health_port) as address:
        announce(health=address)
        try:
            if not options.once:
                await asyncio.Event().wait()
        finally:
            await drain(options.drain, clock)


def failure(options: TinyOptions) -> BaseException:
    error = FAILURES[str(options.fail)]
    if options.grouped and isinstance(error, Exception):
        return ExceptionGroup("tasks", [ExceptionGroup("inner", [error])])
    return error


async def drain(how: str, clock: Clock) -> None:
    """Drain, and say so, in the way that a test wants to see."""
    if how == "fail":
        raise ZeroDivisionError("while draining")
    print("draining", flush=True)
    if how == "hang":
        await asyncio.Event().wait()
    if how == "busy":
        with contextlib.suppress(RuntimeError):
            while True:
                clock.monotonic()  # a loop that never gets its turn again
    print("drained", flush=True)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fail", choices=FAILURES)
    parser.add_argument("--grouped", action="store_true")
    parser.add_argument("--drain", default="clean", help="clean, hang, busy, thread or fail")
    parser.add_argument("--once", action="store_true")


PROGRAM = Program(
    name="tiny",
    summary="Serves a health port and nothing else.",
    configuration=ExtenderConfiguration,
    options=TinyOptions,
    health=HealthPort(8889),
    run=run,
    add_flags=add_flags,
)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
