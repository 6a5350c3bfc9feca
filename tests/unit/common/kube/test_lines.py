# SPDX-License-Identifier: Apache-2.0
"""Lines come out whole, however the bytes arrive."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from common.kube.lines import LineSplitter

LINES = st.lists(st.binary().map(lambda line: line.replace(b"\n", b"")))


@st.composite
def chunked_lines(draw: st.DrawFn) -> tuple[list[bytes], bytes, list[bytes]]:
    """Return lines, an unfinished rest, and the same bytes cut anywhere."""
    lines = draw(LINES)
    rest = draw(st.binary(max_size=5)).replace(b"\n", b"")
    data = b"".join(line + b"\n" for line in lines) + rest
    cuts = sorted(draw(st.lists(st.integers(0, len(data)))))
    edges = [0, *cuts, len(data)]
    chunks = [data[start:end] for start, end in pairwise(edges)]
    return lines, rest, chunks


@given(chunked_lines())
def test_any_chunking_gives_the_same_lines(case: tuple[list[bytes], bytes, list[bytes]]) -> None:
    lines, rest, chunks = case
    splitter = LineSplitter(16 << 20)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert found == [line for line in lines if line]
    assert splitter.mid_line is bool(rest)


def test_a_line_of_many_chunks_is_joined_once() -> None:
    splitter = LineSplitter(16 << 20)
    for _ in range(10_000):
        assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"\n") == [b"x" * 10_000_000]
