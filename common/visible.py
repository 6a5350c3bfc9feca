# SPDX-License-Identifier: Apache-2.0
"""Escapes control characters in texts from the cluster, so that no terminal acts on them.

Every client with write access can write messages, reasons and annotations, and the
API server keeps control characters in them. A terminal clears its screen for some, runs what
the clipboard holds for others, and shows lines from right to left. Every text that is printed,
logged or served passes here; what is not printable is shown as its escape (`\\x1b`, `\\u202e`).
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_UNUSUAL: Final = re.compile(r"[^ -~]")


def visible(text: str) -> str:
    """Return a text on one line in which everything can be seen."""
    return _UNUSUAL.sub(_shown, text)


def visible_lines(text: str) -> str:
    """Return the same of a text that has lines of its own."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(text: str) -> str:
    """Return the same JSON, with escapes for what a terminal would act on."""
    return _UNUSUAL.sub(_escaped, text)


def made_visible(value: T) -> T:
    """Return a value with all its texts made visible."""
    found: T = msgspec.convert(_cleaned(msgspec.to_builtins(value)), type(value))
    return found


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(each) for each in value]
    return value


def _shown(found: re.Match[str]) -> str:
    char = found[0]
    return char if char.isprintable() else repr(char)[1:-1]


def _escaped(found: re.Match[str]) -> str:
    """Return a JSON escape; line ends are between values, where they may stand."""
    char = found[0]
    if char.isprintable() or char in "\n\t\r":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    pairs = (units[i : i + 2] for i in range(0, len(units), 2))
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in pairs)
