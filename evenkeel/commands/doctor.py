# SPDX-License-Identifier: Apache-2.0
"""`evenkeel doctor`: checks wiring, CRD, permissions, versions, metrics and configurations."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.text import Text

from common.grid import Grid
from evenkeel.doctor import Finding, Level, examine, gather
from evenkeel.errors import ANSWER_IS_NO
from evenkeel.output import emit
from evenkeel.session import reading
from evenkeel.shell import Call, command
from rebalancer.inspection.words import counted

_STYLES = {Level.OK: "green", Level.NOTE: "yellow", Level.FAIL: "red"}


@click.command("doctor", short_help="Check the installation; each failure with its fix.")
@command
async def doctor_command(call: Call) -> int | None:
    """Check the installation: every failure comes with its fix.

    Exits with 3 if something is wrong.
    """
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        with call.progress.waiting("Examining …"):
            findings = examine(await gather(session))
    failed = sum(finding.level is Level.FAIL for finding in findings)
    document = {"failed": failed, "findings": findings}
    emit("Doctor", document, call.output, lambda: _page(findings, failed))
    return ANSWER_IS_NO if failed else None


def _page(findings: tuple[Finding, ...], failed: int) -> RenderableType:
    grid = Grid(("", "check", "found"))
    for finding in findings:
        mark = Text(finding.level.value, style=_STYLES[finding.level])
        fix = f"; fix: {finding.fix}" if finding.fix else ""
        grid.add(mark, finding.check, f"{finding.words}{fix}")
    end = f"{counted(failed, 'problem')} found." if failed else "Nothing is wrong."
    return Group(grid, Text(end, style="bold"))
