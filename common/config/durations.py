# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them: `30s`, `5m`, `1h30m`, `100ms`.

In code a `Duration` is a float of seconds, so it goes straight to a clock. A bare number is
refused: whether `30` means seconds or minutes is exactly what the unit is there to say.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic_core import CoreSchema, PydanticCustomError, core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

_UNITS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART: Final = r"(\d+(?:\.\d+)?)(ms|s|m|h)"
_WHOLE: Final = re.compile(rf"(?:{_PART})+", re.ASCII)
_PARTS: Final = re.compile(_PART, re.ASCII)
_LONGEST_MS: Final = 366 * 24 * 3_600_000


class Duration(float):
    """A length of time in seconds, at least 0.

    `Duration("90s")` remembers how it was written, so people see their own words again.
    """

    __slots__ = ("_written",)
    _written: str

    def __new__(cls, value: str | float) -> Self:
        """Raise ValueError for a text that states no duration, or a number that is none."""
        seconds = _seconds(value) if isinstance(value, str) else value
        if not 0.0 <= seconds < inf:
            raise ValueError(f"{seconds} s is not a duration")
        self = super().__new__(cls, seconds)
        self._written = value if isinstance(value, str) else _spelt(float(value))
        return self

    @property
    def seconds(self) -> float:
        return float(self)

    def __str__(self) -> str:
        return self._written

    def __repr__(self) -> str:
        return f"Duration({self._written!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._written,)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validated,
            json_schema_input_schema=core_schema.str_schema(pattern=rf"^({_PART})+$"),
            serialization=core_schema.to_string_ser_schema(when_used="json"),
        )

    @classmethod
    def _validated(cls, value: Any) -> Duration:
        if isinstance(value, Duration):
            return value
        shown = (
            value if isinstance(value, str) else "nothing" if value is None else str(value).lower()
        )
        try:
            return cls(shown)
        except ValueError as error:
            raise PydanticCustomError("duration", "{why}", {"why": str(error)}) from None


def _seconds(text: str) -> float:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text} is not a duration: write 30s, 5m or 1h")
    millis = sum(Fraction(count) * _UNITS[unit] for count, unit in _PARTS.findall(text))
    if millis.denominator != 1:
        raise ValueError(f"{text} is finer than a millisecond")
    if millis > _LONGEST_MS:
        raise ValueError(f"{text} is longer than a year")
    return float(millis / 1000)


def _spelt(seconds: float) -> str:
    millis, parts = round(seconds * 1000), []
    for unit, size in _UNITS.items():
        count, millis = divmod(millis, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"
