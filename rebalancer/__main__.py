# SPDX-License-Identifier: Apache-2.0
"""`python -m rebalancer`: keeps nodes level."""

from __future__ import annotations

import argparse
import gc
import sys
from typing import Final

from common.cli import HealthPort, Program, main, port
from common.config import Mode, RebalancerConfiguration
from rebalancer.main import ConsolePort, RebalancerOptions, run


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this program has."""
    parser.add_argument(
        "--mode",
        type=Mode,
        choices=tuple(Mode),
        metavar="{observe,act}",
        help="act carries out plans, observe moves nothing; overrides the configuration, "
        "where observe is the default",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be done and evict nothing"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="with --dry-run: make one plan from the samples at hand, print it and exit",
    )
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        help="with --once: the plan for people or for machines (default: text)",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="with --once: list every pod that stays, also on nodes that need not give any",
    )
    parser.add_argument(
        "--console-port",
        metavar="P",
        type=_console_port,
        default=ConsolePort.CONFIGURED,
        help="port of the console, always on loopback; 0 is a free one, off serves none "
        "(default: console.port of the configuration, 8891)",
    )


def _console_port(text: str) -> int | ConsolePort:
    return ConsolePort.OFF if text == "off" else port(text)


GC_THRESHOLDS: Final = (20_000, 20, 20)
"""A plan for a large cluster makes many objects and few reference cycles. With the default
thresholds the collector scans all of the former again and again."""

PROGRAM: Final = Program(
    name="rebalancer",
    summary="Keeps nodes level: moves the fewest pods that bring them within their limits.",
    configuration=RebalancerConfiguration,
    options=RebalancerOptions,
    health=HealthPort(8890, "/debug/plan"),
    run=run,
    add_flags=add_flags,
)

if __name__ == "__main__":
    gc.set_threshold(*GC_THRESHOLDS)
    sys.exit(main(PROGRAM))
