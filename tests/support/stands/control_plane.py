# SPDX-License-Identifier: Apache-2.0
"""pytest on the real control plane: one for each worker, which runs one test at a time.

The conftest files of `tests/e2e` and `tests/conformance` import the names in
`__all__`. The control plane hangs on pytest's configuration, not on a fixture's scope, so
that the folders share one. A guardian ends it even when pytest is killed.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path

import pytest

from bench.stands.cluster import Cluster
from controlplane.cluster import ClusterOptions, ControlPlane, up
from controlplane.guardian import Guardian
from controlplane.releases import DEFAULT, chosen_release

__all__ = (
    "cluster",
    "control_plane",
    "pytest_addoption",
    "pytest_generate_tests",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
    "pytest_terminal_summary",
    "say",
)

SEEDS = (1, 2, 3, 4, 5)

Say = Callable[[str], None]

_CONTROL_PLANE = pytest.StashKey[ControlPlane]()
_SUMMARIZED = pytest.StashKey[bool]()
_FIGURE = "figure"


def pytest_addoption(parser: pytest.Parser) -> None:
    # The second conftest that imports this finds the option there.
    with contextlib.suppress(ValueError):
        parser.addoption(
            "--all-seeds",
            action="store_true",
            help=f"run tests that take a seed with {len(SEEDS)} seeds instead of one",
        )
        parser.addoption(
            "--seeds",
            metavar="S,…",
            type=_numbers,
            help="run tests that take a seed with these, for example 6,7,8",
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        everything = metafunc.config.getoption("--all-seeds")
        given = metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", given or (SEEDS if everything else SEEDS[:1]))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as skipped too; that one is intended. Real nodes need what not
    # every host has, and some tests what not every release has; those tests say what is missing.
    expected = hasattr(report, "wasxfail") or item.get_closest_marker("real_nodes")
    if report.skipped and not expected and chosen_release() == DEFAULT:
        report.outcome, report.longrepr = "failed", _complaint(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        report.outcome, report.longrepr = "failed", _complaint(report)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the figures of all tests, also of those that ran in another process."""
    if config.stash.get(_SUMMARIZED, False):
        return  # the other folder's conftest has done it
    config.stash[_SUMMARIZED] = True
    reports = (r for found in terminalreporter.stats.values() for r in found)
    ended = [r for r in reports if getattr(r, "when", "") == "teardown" and r.user_properties]
    if ended:
        terminalreporter.section("figures")
    for report in ended:
        terminalreporter.write_line(report.nodeid)
        for name, line in report.user_properties:
            if name == _FIGURE:
                terminalreporter.write_line(f"    {line}")


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Print figures for people in the summary of the run."""

    def speak(line: str) -> None:
        request.node.user_properties.append((_FIGURE, line))

    return speak


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """The real control plane of this run, without nodes."""
    stash = request.config.stash
    if _CONTROL_PLANE not in stash:
        stash[_CONTROL_PLANE] = started(request)
    return stash[_CONTROL_PLANE]


@pytest.fixture
async def cluster(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The real cluster with a fresh namespace, and with the nodes that the test adds."""
    mine = Cluster(control_plane, tmp_path)
    await mine.open()
    try:
        yield mine
    finally:
        await mine.clear()


def started(request: pytest.FixtureRequest, *, real_nodes: int = 0) -> ControlPlane:
    """Start a control plane that is stopped at the end of the run."""
    root = Path(tempfile.mkdtemp(prefix="evenkeel-e2e-"))
    guardian = Guardian(root)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    # The first run compiles for minutes: no one should have to wonder.
    visible = capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
    try:
        with visible:
            print()
            options = ClusterOptions(root, real_nodes=real_nodes)
            plane = up(options, lambda line: print(f"  {line}", flush=True))
    except BaseException:
        guardian.dismiss()
        raise
    request.config.add_cleanup(lambda: _end(plane, guardian, request.session))
    return plane


def _end(plane: ControlPlane, guardian: Guardian, session: pytest.Session) -> None:
    plane.down()
    guardian.dismiss()
    if session.testsfailed:
        print(f"\nlogs of the control plane: {plane.folder.logs}")
    else:
        shutil.rmtree(plane.folder.root)


def _complaint(report: pytest.TestReport | pytest.CollectReport) -> str:
    return f"a skip fails this run: {report.longreprtext}"
