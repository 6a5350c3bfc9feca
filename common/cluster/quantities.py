# SPDX-License-Identifier: Apache-2.0
"""Amounts as Kubernetes writes them (`500m`, `1.5`, `128Mi`), turned into integers.

The rules are those of apimachinery/pkg/api/resource (quantity.go, suffix.go, amount.go,
scale_int.go) in v0.36, odd corners included: code that compares a pod with a node must see
the number that kube-scheduler sees, even where Go's arithmetic overflows. So:

- anything below a billionth is rounded up to one, and so are the results: a request for
  some of a resource never becomes a request for none of it;
- only binary amounts are capped, at 2^63 - 1; decimal ones that do not fit become zero
  or wrap, depending on the scale;
- negative amounts are rounded away from zero, unless Go keeps them as big decimals (more
  than 18 digits, or a binary unit with a fraction): there a remainder adds one.

Results always fit into 64 bits, except those of `exact_milli`, which exist for summing.
A bare JSON number (`cpu: 2`) is read by its text, as Quantity.UnmarshalJSON does.
Two differences: of a number that takes more than a thousand characters only its length
counts, and it is cut to 2^63 - 1 units like binary ones; and exponents around ±2^31, on
which Go overflows or computes for minutes, mean what they say.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

_MAX: Final = 2**63 - 1
_NANO: Final = 10**9
_MICRO: Final = 10**6

_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BILLIONTHS: Final = {unit: 10 ** (power + 9) for unit, power in _DECIMAL.items()} | {
    unit: _NANO << power for unit, power in _BINARY.items()
}

# Possessive throughout, as Go's scanner never goes back: linear on any input.
_QUANTITY: Final = re.compile(
    r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[+-]?+[0-9]*+)"
)
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)")
_LONGEST: Final = 1000
_LONGEST_UNIT: Final = 20
"""Of a long number; an exponent that fits into 64 bits has as many digits."""

# Trimmed by Quantity.UnmarshalJSON, which sees the JSON text: a tab arrives there as `\t`.
_BLANKS: Final = " \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)

# Powers of ten for which positiveScaleInt64 (math.go) multiplies in one step and hands
# out the overflown product; for all others it gives zero.
_WRAPPING_SHIFTS: Final = frozenset({1, 2, 3, 6, 9})


class QuantityError(ValueError):
    """A text that Kubernetes would not take for a quantity; the words name it."""

    def __init__(self, text: str, why: str) -> None:
        shown = text if len(text) <= 40 else text[:40] + "…"
        super().__init__(f"'{shown}' is not a quantity: {why}")
        self.text = text


_Values = tuple[int, int, int]
"""The results of `milli`, `whole` and `exact_milli`; a named tuple takes as long as parsing."""


class _Parts(NamedTuple):
    """A quantity taken apart: `digits` × 10^`scale` × 2^`power`."""

    negative: bool
    digits: str
    scale: int
    power: int
    small: bool
    """Kept as a 64-bit integer by Go, not as a big decimal."""


def milli(amount: str | float) -> int:
    """Return thousandths, rounded up: Go's `MilliValue()`; the unit of CPU."""
    return _read(str(amount))[0]


def whole(amount: str | float) -> int:
    """Return units, rounded up: Go's `Value()`; bytes of memory, numbers of devices."""
    return _read(str(amount))[1]


def exact_milli(amount: str | float) -> int:
    """Return thousandths for summing: they never wrap, and stop at 2^63 - 1 units."""
    return _read(str(amount))[2]


def _read(text: str) -> _Values:
    # A long one is not remembered: it may be as large as an object.
    return _values(text) if len(text) <= _LONGEST else _endless(text)


def _endless(text: str) -> _Values:
    """Return what is left of a number that is too long to be computed with.

    The API server accepts any length. A pod that asks for so much, or is limited to it, may run
    all the same, and is seen on its node like any other.
    """
    found = _QUANTITY.fullmatch(text)
    sign, _, number, _, unit = found.groups("") if found else ("",) * 5
    short = len(number) < _LONGEST // 2 or len(unit) > _LONGEST_UNIT
    if short or (unit not in _BINARY and _exponent(text, unit) < -9):
        raise QuantityError(text, "it is too long")
    capped = -_MAX if sign == "-" else _MAX
    return capped, capped, 1000 * capped


@lru_cache(maxsize=4096)
def _values(text: str) -> _Values:
    return _plain(text) or _general(text)


def _plain(text: str) -> _Values | None:
    """Parse digits with a unit, which is what nearly all quantities are."""
    unit = text.lstrip("0123456789")
    factor = _BILLIONTHS.get(unit)
    length = len(text) - len(unit)
    if factor is None or not 0 < length <= 18:
        return None
    nano = int(text[:length]) * factor
    thousandths = -(-nano // _MICRO)
    if thousandths > _MAX:
        return None
    return thousandths, -(-nano // _NANO), thousandths


def _general(text: str) -> _Values:
    parts = _split(text.strip(_BLANKS))
    nano = _nano(parts)
    capped = parts.power > 0 and nano > _MAX * _NANO
    if capped:
        nano = _MAX * _NANO
    sign = -1 if parts.negative else 1
    thousandths, units = sign * -(-nano // _MICRO), sign * -(-nano // _NANO)
    exact = max(-_MAX * 1000, min(thousandths, _MAX * 1000))
    if parts.small:
        values = _checked(thousandths, parts.scale + 3), _checked(units, parts.scale)
    elif parts.negative and not capped:
        values = _negative(-nano, _MICRO), _negative(-nano, _NANO)
    else:
        values = _int64(thousandths), _int64(units)
    return *values, exact


def _split(text: str) -> _Parts:
    found = _QUANTITY.fullmatch(text) if 0 < len(text) <= _LONGEST else None
    if found is None:
        raise QuantityError(text, "expected a number with a unit, such as 500m, 1.5 or 128Mi")
    sign, zeros, number, fraction, unit = found.groups("")
    digits = (number or "0") + fraction
    if (power := _BINARY.get(unit, 0)) > 0:
        scale = -len(fraction)
        small = not fraction and len(digits) <= 14 - power * 3 // 10
    else:
        scale = _exponent(text, unit) - len(fraction)
        small = len(digits) <= 18 and scale >= -9
    if not (small or zeros or number or fraction):
        raise QuantityError(text, "it has no digits")
    return _Parts(sign == "-", digits, scale, power, small)


def _exponent(text: str, unit: str) -> int:
    if (known := _DECIMAL.get(unit)) is not None:
        return known
    found = _EXPONENT.fullmatch(unit)
    exponent = int(found[1]) if found else None
    if exponent is None or not -_MAX - 1 <= exponent <= _MAX:
        raise QuantityError(text, f"there is no unit '{unit}'")
    return _wrap(exponent, 32)


def _nano(parts: _Parts) -> int:
    """Return the magnitude in billionths, rounded up."""
    amount = int(parts.digits) << parts.power
    shift = parts.scale + 9
    # Beyond these limits the outcome is settled: 10^100 is 0 modulo 2^64, and no text is
    # long enough to reach one billionth from below. Go would compute for minutes.
    power: int = 10 ** min(abs(shift), 100 if shift >= 0 else 2 * _LONGEST)
    return amount * power if shift >= 0 else -(-amount // power)


def _checked(amount: int, shift: int) -> int:
    """Return what Go's 64-bit integers make of `amount`, scaled by 10^`shift`."""
    if -_MAX - 1 <= amount <= _MAX:
        return amount
    return _int64(amount) if shift in _WRAPPING_SHIFTS else 0


def _negative(nano: int, unit: int) -> int:
    """Return what scaledValue (scale_int.go) makes of a negative big decimal."""
    seen = _int64(nano)
    towards_zero = seen // unit if seen >= 0 else -(-seen // unit)
    return towards_zero + (seen % unit != 0)


def _int64(value: int) -> int:
    return _wrap(value, 64)


def _wrap(value: int, bits: int) -> int:
    half: int = 1 << (bits - 1)
    return (value + half) % (2 * half) - half
