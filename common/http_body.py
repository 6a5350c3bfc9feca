# SPDX-License-Identifier: Apache-2.0
"""Reads answers without letting them grow beyond a limit.

A megabyte of gzip can unpack to a gigabyte, so what counts is the decoded size, and it is
counted while unpacking: a body that passes its limit is given up there, unread. All
that read over HTTP ask for gzip or nothing and unpack with this module; the libraries' own
unpacking has no limit.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

MIB: Final = 1 << 20
_STEP: Final = MIB
_MOST_PACKED: Final = 200
"""Lists of objects come to a tenth or a twentieth of their size, blanks to a thousandth."""
_UNSUSPECTED: Final = 16 * MIB
"""Up to here it does not matter how much was packed: one large value may be very uniform."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class BodyError(Exception):
    """A body that cannot be unpacked; says why."""


class BodyTooLarge(BodyError):
    """A body that is larger than its reader allows."""


async def read_body(chunks: AsyncIterator[bytes], encoding: str, limit: int) -> bytes:
    """Return a body as it was before it was packed; raise BodyError if that is too much."""
    unpack = _unpacker(encoding)
    pieces, size, packed = list[bytes](), 0, 0
    async for chunk in chunks:
        packed += len(chunk)
        if packed > limit:  # of gzip that holds nothing there is no end either
            raise BodyTooLarge(f"the answer is larger than {limit // MIB} MiB")
        for piece in unpack(chunk):
            size += len(piece)
            if size > limit:
                raise BodyTooLarge(f"the answer is larger than {limit // MIB} MiB")
            if size > max(_UNSUSPECTED, _MOST_PACKED * packed):
                raise BodyTooLarge(f"the answer unpacks to more than {_MOST_PACKED} times its size")
            if piece:
                pieces.append(piece)
    return b"".join(pieces)


async def read_start(chunks: AsyncIterator[bytes], encoding: str, limit: int) -> bytes:
    """Return what a body begins with; what is cut off or cannot be unpacked is not missed."""
    pieces, size = list[bytes](), 0
    try:
        unpack = _unpacker(encoding)
        async for chunk in chunks:
            for piece in unpack(chunk):
                pieces.append(piece)
                size += len(piece)
                if size >= limit:
                    return b"".join(pieces)[:limit]
    except BodyError:
        pass
    return b"".join(pieces)


class _Gunzip:
    """Unpacks gzip, in steps whose size is known beforehand."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP)

    def __call__(self, chunk: bytes) -> Iterator[bytes]:
        try:
            more = bool(chunk)
            while more:
                piece = self._inflater.decompress(chunk, _STEP)
                yield piece
                chunk = self._inflater.unconsumed_tail
                more = bool(chunk) or len(piece) == _STEP
                if self._inflater.eof:
                    # Another member may follow (RFC 1952, 2.2).
                    chunk = self._inflater.unused_data
                    more = bool(chunk)
                    self._inflater = zlib.decompressobj(_GZIP)
        except zlib.error as error:
            raise BodyError(f"the answer is not gzip: {error}") from error


def _plain(chunk: bytes) -> Iterator[bytes]:
    yield chunk


def _unpacker(encoding: str) -> Callable[[bytes], Iterator[bytes]]:
    packed = encoding.strip().lower()
    if packed in ("", "identity"):
        return _plain
    if packed in ("gzip", "x-gzip"):
        return _Gunzip()
    raise BodyError(f"the answer is packed as {encoding[:40]!r}, which was not asked for")
