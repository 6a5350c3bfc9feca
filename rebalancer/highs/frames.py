# SPDX-License-Identifier: Apache-2.0
"""Messages between the planner and the solver's process: a length, then MessagePack."""

from __future__ import annotations

import struct
from typing import IO, Final

import msgspec

from rebalancer.linear_problem import Answer, LinearProblem

_LENGTH: Final = struct.Struct("<I")
_ENCODER: Final = msgspec.msgpack.Encoder()
_PROBLEM: Final = msgspec.msgpack.Decoder(LinearProblem)
_ANSWER: Final = msgspec.msgpack.Decoder(Answer)


def encode(message: LinearProblem | Answer) -> bytes:
    return _ENCODER.encode(message)


def decode_problem(frame: bytes) -> LinearProblem:
    return _PROBLEM.decode(frame)


def decode_answer(frame: bytes) -> Answer:
    return _ANSWER.decode(frame)


def write_frame(stream: IO[bytes], content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next message; None where the other end is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    length: int = _LENGTH.unpack(head)[0]
    content = stream.read(length)
    return content if len(content) == length else None
