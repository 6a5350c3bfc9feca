# SPDX-License-Identifier: Apache-2.0
"""Settings that hold for every test."""

import asyncio
import gc
import os
from collections.abc import Callable, Mapping

import pytest
import structlog
import uvloop
from hypothesis import HealthCheck, settings

# The machines are shared: a slow example says nothing about the code.
settings.register_profile("evenkeel", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Elsewhere chance finds new cases; a verdict on a change is about the change.
settings.register_profile("ci", settings.get_profile("evenkeel"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "evenkeel")

# Modules and tests stay: there is no point in looking for cycles among them.
gc.disable()

WORKERS_PER_CORE = 2
# Planners make many objects and few cycles: full collections took a sixth of their tests' time.
COLLECT_AFTER = (20_000, 20, 50)
# About eighty programs leave so much behind; to look through all objects takes a second.
FROZEN_OBJECTS = 500_000


@pytest.hookimpl(optionalhook=True)  # a run without xdist does not know this hook
def pytest_xdist_auto_num_workers() -> int:
    """Run more workers than cores: tests of whole programs wait five times as long as they work.

    They wait for leases, deadlines and measurements; others compute meanwhile. With three workers
    per core programs that go by a fast clock starve now and then. A worker takes up to 0.8 GB.
    """
    return WORKERS_PER_CORE * (os.cpu_count() or 1)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests on the event loop of the programs; it also takes less of the machine."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each worker start with its share of the long tests; the others stay in random order.

    xdist hands each worker a part of the list, all parts of the same length, and who is done
    steals from the end of another part. Long tests at the head of the list would all be run by
    the first worker, one after the other.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = sorted((item for item in items if _seconds(item)), key=_seconds, reverse=True)
    others = [item for item in items if not _seconds(item)]
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for item in long:
        min(shares, key=lambda share: sum(map(_seconds, share))).append(item)
    total, items[:] = len(items), []
    for number, share in enumerate(shares):
        length = (total - len(items)) // (workers - number)  # as xdist/scheduler/worksteal.py
        filling = max(0, length - len(share))
        items += [*share, *others[:filling]]
        del others[:filling]
    items += others


def _seconds(item: pytest.Item) -> float:
    """Return about how long a long test takes; 0 for one that is not marked."""
    marker = item.get_closest_marker("long")
    return float(marker.args[0]) if marker is not None else 0.0


class FrozenObjects:
    """Keeps the collector from going through all modules and tests, and frees what programs left.

    A program freezes all objects once it has read its cluster (common/cache/reader.py), which
    happens once in its life and hundreds of times in a test process: it would grow by a
    gigabyte.
    """

    def __init__(self) -> None:
        self._finished = 0
        self._most = 0

    def pytest_collection_finish(self) -> None:
        gc.set_threshold(*COLLECT_AFTER)
        # Not collected first: each worker would go through all modules for 20 MB of garbage.
        self._freeze()
        gc.enable()

    def pytest_runtest_logfinish(self) -> None:
        self._finished += 1
        # Counting them takes 10 ms.
        if self._finished % 50 == 0 and gc.get_freeze_count() > self._most:
            gc.unfreeze()
            gc.collect()
            self._freeze()

    def _freeze(self) -> None:
        gc.freeze()
        self._most = gc.get_freeze_count() + FROZEN_OBJECTS


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FrozenObjects())
    _print_short_tracebacks()


def _print_short_tracebacks() -> None:
    """Let logs show errors without the variables of each frame, which may hold all tests."""
    *first, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*first, plain])
