"""`python -m simulator demo`: a cluster gets hot, and Evenkeel makes it level.

The cluster, the extender and the rebalancer are processes of their own; the demo only starts
them, looks at the API and tells. Ctrl-C, SIGTERM and a closed terminal end everything that was
started and remove every file; a second signal does so without patience, and a guardian does
so for a demo that was killed.

    0          it has ended by itself, or was kept and told to stop
    1          something could not work or died; says what
    2          flags or files not understood
    128 + n    ended by a signal before it was over
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from common.clock import SYSTEM, Clock
from common.kube.errors import KubeError
from simulator.demo import settings, words
from simulator.demo.availability import in_words
from simulator.demo.guardian import guarded
from simulator.demo.next_steps import Kept, while_kept, without_keeping
from simulator.demo.programs import Program, Programs
from simulator.demo.recording import Recorder
from simulator.demo.screen import Scene
from simulator.demo.settings import DemoSettings
from simulator.demo.sight import Eyes, Sight
from simulator.demo.stands import Stand, Wanted, real, simulated
from simulator.demo.story import Story
from simulator.demo.views import View, in_lines, view_for
from simulator.figures import natural
from simulator.process import DONE, CannotServe
from simulator.scenarios import Scenario, load_scenario

SCENARIO: Final = "requests-mislead"
_EVERY_S: Final = 0.4
_LONGEST_S: Final = 110.0
"""From the first process on, so that two minutes are enough for ending everything too."""
_LONGEST_REAL_S: Final = 400.0
"""From when the control plane runs: building it may take minutes, which are not the demo's."""
_SEEN_HOT_S: Final = 4.0
"""How long the plain scheduler's work is looked at before the rebalancer starts."""
_SAMPLE_S: Final = 15.0
"""How often a cluster measures; simulated ones go by their own time."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True, kw_only=True)
class Demo:
    """One demo, from its first process to its last."""

    flags: argparse.Namespace
    scenario: Scenario
    settings: DemoSettings
    programs: Programs
    view: View
    recorder: Recorder | None
    clock: Clock
    began: float
    deadline: float = 0.0
    over: bool = False
    """Whether all was shown; what comes after is only kept."""
    last: Scene | None = None
    """What was shown last."""

    async def run(self) -> None:
        """Show it all; with `--keep` stay until told to end."""
        port = free_port()
        wanted = Wanted(
            name=self.name,
            scenario=self.scenario,
            seed=self.flags.seed,
            speed=self.flags.speed,
            scheduler=settings.scheduler_config(self.programs.folder, port),
        )
        stand = real if self.flags.real else simulated
        self._say(f"starting the {'control plane' if self.flags.real else 'simulated cluster'}")
        if self.flags.real:
            self._say("usage is measured every 15 s there: this takes two to three minutes")
        async with stand(wanted, self.programs, self._say, clock=self.clock) as cluster:
            eyes = Eyes(cluster.client, ceiling=self.settings.ceiling, clock=self.clock)
            async with eyes.open():
                await self._play(cluster, eyes, port)

    @property
    def name(self) -> str:
        return self.flags.scenario or SCENARIO

    @property
    def seconds(self) -> float:
        return self.clock.monotonic() - self.began

    async def _play(self, cluster: Stand, eyes: Eyes, port: int) -> None:
        self._say("starting the extender beside the scheduler")
        extender = self._start(cluster, "extender", "--port", str(port))
        self.deadline = self._longest_until()
        story = self._story()
        await self._heat_up(eyes, story, extender)
        eyes.availability.begin()
        rebalancer = self._start(cluster, "rebalancer")
        while self._in_time() and not story.over:
            eyes.rebalancer = str(rebalancer.announced().get("health", ""))
            await self._step(eyes, story)
        self.over = True
        self._end(story, eyes, self._kept(cluster, eyes, extender, rebalancer))
        if self.flags.keep:
            await self._stay(eyes, story)

    def _longest_until(self) -> float:
        if self.flags.real:
            return self.clock.monotonic() + (self.flags.longest or _LONGEST_REAL_S)
        return self.began + (self.flags.longest or _LONGEST_S)

    def _story(self) -> Story:
        config = self.settings.rebalancer
        sample_s = _SAMPLE_S / (1.0 if self.flags.real else self.flags.speed)
        return Story(
            points=float(config.imbalance_threshold),
            nodes=sum(pool.count for pool in self.scenario.pools),
            sample_cycles=sample_s / config.rescheduling_interval.seconds,
        )

    async def _heat_up(self, eyes: Eyes, story: Story, extender: Program) -> None:
        """Look at the plain scheduler's work until everything runs and is measured."""
        since: float | None = None
        # Pods that never run must not keep the rebalancer from the others.
        half = (self.clock.monotonic() + self.deadline) / 2
        while self.clock.monotonic() < half:
            sight = await self._step(eyes, story)
            since = (since or self.seconds) if sight.settled and extender.announced() else None
            if since is not None and self.seconds - since >= _SEEN_HOT_S:
                return

    async def _step(self, eyes: Eyes, story: Story) -> Sight:
        """Look once, show it, and wait a little."""
        if not self.over:
            self.programs.check()
        sight = await eyes.see()
        story.take(sight)
        scene = Scene(
            title=self.name,
            description=self.scenario.description,
            waits=self.settings.waits(),
            story=story,
            sight=sight,
            seconds=self.seconds,
        )
        self.view.show(scene)
        self.last = scene
        if self.recorder is not None:
            self.recorder.take(scene)
        await self.clock.sleep(_EVERY_S)
        return sight

    async def _stay(self, eyes: Eyes, story: Story) -> None:
        """Go on telling in lines; whoever is killed now was killed on purpose."""
        self.view, self.recorder, told = in_lines(self.view, self.last), None, set[str]()
        while True:
            for program in self.programs.ended():
                if program.name == "cluster":
                    program.check()
                if program.name not in told:
                    told.add(program.name)
                    self._say(f"the {program.name} has ended")
            await self._step(eyes, story)

    def _start(self, cluster: Stand, name: str, *arguments: str) -> Program:
        file = self.settings.extender_file if name == "extender" else self.settings.rebalancer_file
        return self.programs.start(
            *(name, name, "--config", str(file), "--kubeconfig", str(cluster.kubeconfig)),
            *("--health-port", "0", *arguments),
        )

    def _in_time(self) -> bool:
        return self.clock.monotonic() < self.deadline

    def _end(self, story: Story, eyes: Eyes, kept: Kept) -> None:
        figures = story.figures(self.seconds)
        rows = words.summary(figures, in_words(eyes.availability.missing(eyes.snapshot())))
        verdict = words.verdict(figures, story)
        steps = while_kept(kept) if self.flags.keep else without_keeping(self._command())
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
            raise CannotServe(f"{file}: cannot be written: {error.strerror or error}") from None

    def _kept(self, cluster: Stand, eyes: Eyes, extender: Program, rebalancer: Program) -> Kept:
        return Kept(
            kubeconfig=cluster.kubeconfig,
            server=cluster.server,
            kubectl=cluster.kubectl,
            node=min(eyes.snapshot().nodes, key=natural),
            extender_pid=extender.pid,
            rebalancer_pid=rebalancer.pid,
            cluster=cluster.words,
            logs=self.programs.folder,
        )

    def _command(self) -> str:
        scenario = f" --scenario {shlex.quote(self.name)}" if self.flags.scenario else ""
        return f"{_python()} -m simulator demo{scenario}{' --real' if self.flags.real else ''}"

    def _say(self, line: str) -> None:
        self.view.say(f"{self.seconds:5.1f} s  {line}")


def demo(flags: argparse.Namespace) -> int:
    """Run a demo as a process and return its exit code."""
    scenario = load_scenario(flags.scenario or SCENARIO)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_supervised(flags, scenario))
        except OSError as error:
            # Nobody reads any more: a closed pipe, or a terminal that is gone.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise CannotServe(f"cannot go on: {error.strerror or error}") from None


async def _supervised(flags: argparse.Namespace, scenario: Scenario) -> int:
    """Run it until it ends or a signal comes; either way nothing is left."""
    folder = tempfile.TemporaryDirectory(prefix="evenkeel-demo-")
    # Libraries leave files as well: credentials from a kubeconfig, when we are killed.
    tempfile.tempdir = folder.name
    with guarded(Path(folder.name)) as watch, folder:
        programs = Programs(Path(folder.name), watch, clock=SYSTEM)
        made = _demo(flags, scenario, programs)
        work = asyncio.ensure_future(made.run())
        asked: list[int] = []
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(
                number, _told, number, asked, work, programs
            )
        try:
            with made.view:
                await work
        except (asyncio.CancelledError, OSError):
            if not asked:
                raise
        except KubeError as error:
            programs.check()
            raise CannotServe(str(error)) from None
        finally:
            await programs.end()
        if asked:
            with suppress(OSError):
                made.view.say("Ended; nothing is left behind.")
        return DONE if made.over or not asked else 128 + asked[0]


def _demo(flags: argparse.Namespace, scenario: Scenario, programs: Programs) -> Demo:
    return Demo(
        flags=flags,
        scenario=scenario,
        settings=settings.load(programs.folder),
        programs=programs,
        view=view_for(as_json=flags.json),
        recorder=Recorder() if flags.record else None,
        clock=SYSTEM,
        began=SYSTEM.monotonic(),
    )


def _told(number: int, asked: list[int], work: asyncio.Future[None], programs: Programs) -> None:
    asked.append(number)
    if len(asked) == 1:
        work.cancel()
    else:
        programs.kill()


def free_port() -> int:
    """Return a port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _python() -> str:
    """Return how this Python is called from here."""
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
