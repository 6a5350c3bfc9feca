"""The hash that tells one pod template from another in names and labels.

Written as the real one writes it (SafeEncodeString of a 32-bit FNV-1a sum), of our own
bytes: the hash of the same template differs from the real controller's.
"""

from __future__ import annotations

from typing import Final

import msgspec

from simulator.api import Json

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def template_hash(template: Json, collisions: int = 0) -> str:
    """Return a short word for a template."""
    total = _OFFSET
    for byte in _encode([template, collisions]):
        total = ((total ^ byte) * _PRIME) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(total))
