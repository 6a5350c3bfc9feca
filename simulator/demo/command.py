# SPDX-License-Identifier: Apache-2.0
"""`python -m simulator demo`: a cluster gets hot, and Evenkeel makes it level.

The cluster, the extender and the rebalancer are separate processes; the demo only starts them,
reads the API and shows the result. Ctrl-C, SIGTERM and a closed terminal stop everything that
was started and remove every file; a second signal kills at once, and a guardian cleans up
after a demo that was killed. Exit codes:

    0          done, or stopped while `--keep` kept it running
    1          something failed; the message names it
    2          invalid flags or files
    128 + n    stopped by a signal before the end
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from common.clock import SYSTEM, Clock
from common.kube.errors import KubeError
from simulator.demo import settings, text
from simulator.demo.availability import describe_shortages
from simulator.demo.client import DemoClient, Observation
from simulator.demo.guardian import guarded
from simulator.demo.next_steps import RunningDemo, steps_while_running, steps_without_keep
from simulator.demo.programs import Program, Programs
from simulator.demo.progress import Progress
from simulator.demo.recording import Recorder
from simulator.demo.screen import DemoState
from simulator.demo.settings import DemoSettings
from simulator.demo.stands import Stand, StandOptions, real, simulated
from simulator.demo.views import View, kept, view_for
from simulator.figures import natural
from simulator.process import DONE, CommandError
from simulator.scenarios import Scenario, load_scenario

SCENARIO: Final = "requests-mislead"
_EVERY_S: Final = 0.4
_LONGEST_S: Final = 110.0
"""From the first process on, so that two minutes are enough including the cleanup."""
_LONGEST_REAL_S: Final = 400.0
"""From when the control plane runs: building it may take minutes, which do not count."""
_SEEN_HOT_S: Final = 4.0
"""How long the hot cluster is shown before the rebalancer starts."""
_SAMPLE_S: Final = 15.0
"""How often a cluster measures, in its own time."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True, kw_only=True)
class Demo:
    """One demo, from its first process to its last."""

    flags: argparse.Namespace
    scenario: Scenario
    settings: DemoSettings
    programs: Programs
    view: View
    clock: Clock
    recorder: Recorder | None = field(default=None, init=False)
    began: float = field(default=0.0, init=False)
    deadline: float = field(default=0.0, init=False)
    over: bool = field(default=False, init=False)
    """Whether the results were shown; with `--keep` it runs on."""
    console: str = field(default="", init=False)
    """Address of the console; empty before it is there."""
    last: DemoState | None = field(default=None, init=False)
    """What was shown last."""

    def __post_init__(self) -> None:
        self.recorder = Recorder() if self.flags.record else None
        self.began = self.clock.monotonic()

    async def run(self) -> None:
        """Show everything; with `--keep` run until stopped."""
        with reserved_port() as port:
            await self._run(port)

    async def _run(self, port: int) -> None:
        options = StandOptions(
            name=self.name,
            scenario=self.scenario,
            seed=self.flags.seed,
            speed=self.flags.speed,
            scheduler=settings.scheduler_config(self.programs.folder, port),
            rebalancer=self.settings.rebalancer_file,
        )
        stand = real if self.flags.real else simulated
        self._report(f"Starting the {'control plane' if self.flags.real else 'simulated cluster'}")
        if self.flags.real:
            self._report("Usage is measured every 10 s there: the demo takes two to three minutes")
        async with stand(options, self.programs, self._report, clock=self.clock) as cluster:
            client = DemoClient(cluster.client, ceiling=self.settings.ceiling, clock=self.clock)
            async with client.open():
                await self._play(cluster, client, port)

    @property
    def name(self) -> str:
        return self.flags.scenario or SCENARIO

    @property
    def seconds(self) -> float:
        return self.clock.monotonic() - self.began

    async def _play(self, cluster: Stand, client: DemoClient, port: int) -> None:
        self._report("Starting the extender for the scheduler")
        extender = self._start(cluster, "extender", "--port", str(port))
        self.deadline = self._longest_until()
        progress = self._new_progress()
        await self._heat_up(client, progress, extender)
        client.availability.begin()
        rebalancer = self._start(cluster, "rebalancer", "--console-port", "0")
        while self._in_time() and not progress.over:
            self._announce(client, rebalancer)
            await self._step(client, progress)
        self.over = True
        self._end(progress, client, self._running(cluster, client, extender, rebalancer))
        if self.flags.keep:
            await self._stay(client, progress)

    def _announce(self, client: DemoClient, rebalancer: Program) -> None:
        """Take over the addresses of the rebalancer once it listens, and print its console's."""
        addresses = rebalancer.announced()
        client.rebalancer = str(addresses.get("health", ""))
        if not self.console and "console" in addresses:
            self.console = f"http://{addresses['console']}"
            self._report(f"Console: {self.console}")

    def _longest_until(self) -> float:
        if self.flags.real:
            return self.clock.monotonic() + (self.flags.longest or _LONGEST_REAL_S)
        return self.began + (self.flags.longest or _LONGEST_S)

    def _new_progress(self) -> Progress:
        config = self.settings.rebalancer
        sample_s = _SAMPLE_S / (1.0 if self.flags.real else self.flags.speed)
        return Progress(
            points=float(config.imbalance_threshold),
            nodes=sum(pool.count for pool in self.scenario.pools),
            sample_cycles=sample_s / config.rescheduling_interval.seconds,
        )

    async def _heat_up(self, client: DemoClient, progress: Progress, extender: Program) -> None:
        """Show the work of the scheduler until all pods are Ready and measured."""
        since: float | None = None
        # Pods that never become Ready must not block the demo.
        half = (self.clock.monotonic() + self.deadline) / 2
        while self.clock.monotonic() < half:
            observation = await self._step(client, progress)
            since = (
                (since or self.seconds) if observation.settled and extender.announced() else None
            )
            if since is not None and self.seconds - since >= _SEEN_HOT_S:
                return

    async def _step(self, client: DemoClient, progress: Progress) -> Observation:
        """Observe once, show it, and wait a little."""
        if not self.over:
            self.programs.check()
        observation = await client.observe()
        progress.update(observation)
        state = DemoState(
            title=self.name,
            description=self.scenario.description,
            waits=self.settings.waits(),
            progress=progress,
            observation=observation,
            seconds=self.seconds,
            console=self.console,
        )
        self.view.show(state)
        self.last = state
        if self.recorder is not None:
            self.recorder.take(state)
        await self.clock.sleep(_EVERY_S)
        return observation

    async def _stay(self, client: DemoClient, progress: Progress) -> None:
        """Go on showing; a program that exits now was stopped by the user."""
        self.view, self.recorder, reported = kept(self.view), None, set[str]()
        with self.view:
            while True:
                for program in self.programs.ended():
                    if program.name == "cluster":
                        program.check()
                    if program.name not in reported:
                        reported.add(program.name)
                        self._report(f"the {program.name} has exited")
                await self._step(client, progress)

    def _start(self, cluster: Stand, name: str, *arguments: str) -> Program:
        file = self.settings.extender_file if name == "extender" else self.settings.rebalancer_file
        return self.programs.start(
            *(name, name, "--config", str(file), "--kubeconfig", str(cluster.kubeconfig)),
            *("--health-port", "0", *arguments),
        )

    def _in_time(self) -> bool:
        return self.clock.monotonic() < self.deadline

    def _end(self, progress: Progress, client: DemoClient, running: RunningDemo) -> None:
        figures = progress.figures(self.seconds)
        rows = text.summary(
            figures, describe_shortages(client.availability.shortages(client.snapshot()))
        )
        verdict = text.verdict(figures, progress)
        steps = (
            steps_while_running(running) if self.flags.keep else steps_without_keep(self._command())
        )
        if self.recorder is not None:
            self.recorder.end(figures.after, verdict, rows, self.seconds)
            self._write(self.recorder)
        self.view.end(figures.after, verdict, rows, steps)
        if self.flags.json:
            print(json.dumps(figures.json()), flush=True)

    def _write(self, recorder: Recorder) -> None:
        file = self.flags.record
        try:
            recorder.write(Path(file))
        except OSError as error:
            raise CommandError(f"{file}: cannot be written: {error.strerror or error}") from None

    def _running(
        self, cluster: Stand, client: DemoClient, extender: Program, rebalancer: Program
    ) -> RunningDemo:
        return RunningDemo(
            kubeconfig=cluster.kubeconfig,
            server=cluster.server,
            kubectl=cluster.kubectl,
            node=min(client.snapshot().nodes, key=natural),
            extender_pid=extender.pid,
            rebalancer_pid=rebalancer.pid,
            cluster=cluster.description,
            console=self.console,
            command=f"{_python()} -m evenkeel",
            extender_command=shlex.join([_python(), "-m", *extender.arguments]),
        )

    def _command(self) -> str:
        scenario = f" --scenario {shlex.quote(self.name)}" if self.flags.scenario else ""
        return f"{_python()} -m simulator demo{scenario}{' --real' if self.flags.real else ''}"

    def _report(self, line: str) -> None:
        self.view.report(f"{self.seconds:5.1f} s  {line}")


def demo(flags: argparse.Namespace) -> int:
    """Run a demo as a process and return its exit code."""
    scenario = load_scenario(flags.scenario or SCENARIO)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_supervised(flags, scenario))
        except OSError as error:
            # The reader is gone: a closed pipe or terminal.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise CommandError(f"cannot write output: {error.strerror or error}") from None


async def _supervised(flags: argparse.Namespace, scenario: Scenario) -> int:
    """Run it until it ends or a signal comes; clean up either way."""
    folder = tempfile.TemporaryDirectory(prefix="evenkeel-demo-")
    # Libraries leave files too: credentials from a kubeconfig, if the demo is killed.
    tempfile.tempdir = folder.name
    with guarded(Path(folder.name)) as watch, folder:
        programs = Programs(Path(folder.name), watch, clock=SYSTEM)
        made = _demo(flags, scenario, programs)
        work = asyncio.ensure_future(made.run())
        asked: list[int] = []
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(
                number, _on_signal, number, asked, work, programs
            )
        try:
            with made.view:
                await work
        except (asyncio.CancelledError, OSError):
            if not asked:
                raise
        except KubeError as error:
            programs.check()
            raise CommandError(str(error)) from None
        finally:
            await programs.end()
        if asked:
            with suppress(OSError):
                made.view.report("Stopped. All processes and files have been removed.")
        return DONE if made.over or not asked else 128 + asked[0]


def _demo(flags: argparse.Namespace, scenario: Scenario, programs: Programs) -> Demo:
    return Demo(
        flags=flags,
        scenario=scenario,
        settings=settings.load(programs.folder),
        programs=programs,
        view=view_for(as_json=flags.json),
        clock=SYSTEM,
    )


def _on_signal(
    number: int, asked: list[int], work: asyncio.Future[None], programs: Programs
) -> None:
    asked.append(number)
    if len(asked) == 1:
        work.cancel()
    else:
        programs.kill()


@contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a loopback port for a server that starts later.

    The kernel gives a port that is bound to no other socket, and with SO_REUSEADDR on both sides
    (`common.http_server` sets it) the server may listen there beside this silent socket.
    """
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind(("127.0.0.1", 0))
        yield silent.getsockname()[1]


def _python() -> str:
    """Return the path of this Python, relative to the working directory if possible."""
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
