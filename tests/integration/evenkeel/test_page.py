# SPDX-License-Identifier: Apache-2.0
"""The output on the page of the command is what the commands print."""

from __future__ import annotations

from tests.support.docs.command_page import PAGE, masked, written


async def test_the_output_on_the_page_is_that_of_real_runs() -> None:
    shown, now = PAGE.read_text(encoding="utf-8"), await written()
    assert [masked(line) for line in shown.split("\n")] == [
        masked(line) for line in now.split("\n")
    ], "make docs writes it"
