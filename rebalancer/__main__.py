"""`python -m rebalancer`: keeps nodes level."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from common.config import Mode, RebalancerConfiguration
from common.program import Program, main
from rebalancer.program import RebalancerOptions, run


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this program has."""
    parser.add_argument(
        "--mode",
        type=Mode,
        choices=tuple(Mode),
        metavar="{observe,act}",
        help="act carries plans out, observe moves nothing; else as the configuration says, "
        "which is observe by default",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be done and evict nothing"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="with --dry-run: make one plan from the samples at hand, print it and end",
    )
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        help="with --once: the plan for people or for machines (default: text)",
    )


PROGRAM: Final = Program(
    name="rebalancer",
    summary="Keeps nodes level: moves the fewest pods that bring them within their limits.",
    configuration=RebalancerConfiguration,
    options=RebalancerOptions,
    health_port=8890,
    run=run,
    add_flags=add_flags,
    debug_page="/debug/plan",
)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
