# SPDX-License-Identifier: Apache-2.0
"""A body ends somewhere, whatever it is packed of."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import pytest

from common.http_body import MIB, BodyTooLarge, read_body


async def test_gzip_that_holds_nothing_is_given_up_at_the_limit() -> None:
    nothing, read = gzip.compress(b"") * 5000, 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while read < 4 * MIB:
            read += len(nothing)
            yield nothing

    with pytest.raises(BodyTooLarge, match="larger than 1 MiB"):
        await read_body(endless(), "gzip", MIB)
    assert read < 2 * MIB


async def test_empty_members_between_others_do_no_harm() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for text in (b"", b"one", b"", b" two", b""):
            yield gzip.compress(text)

    assert await read_body(parts(), "gzip", MIB) == b"one two"
