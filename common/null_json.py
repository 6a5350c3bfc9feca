# SPDX-License-Identifier: Apache-2.0
"""JSON in which `null` is absent, as Go's encoding/json reads it.

To Go a null has no effect on a field that is no pointer, map or slice, and empties one that
is (decode.go, `literalStore`): either way the field is as if the text did not name it. So
every client may send null for whatever it leaves out. Decoding tries the text as it is, in
one pass; only a text that does not fit its type and has a null somewhere is read again
without its nulls, and only that second reading decides what is wrong.

Elements of lists that are null are left out too. Numbers keep their text: the second reading
neither rounds them nor lets them overflow.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

UNDECODABLE: Final = (ValueError, RecursionError)
"""What decoding raises for bytes that are not JSON, not UTF-8, not the type, or too deep."""

_ANYTHING: Final = msgspec.json.Decoder(float_hook=lambda text: msgspec.Raw(text.encode()))
_ENCODER: Final = msgspec.json.Encoder()


class JsonDecoder(Generic[T]):
    """Decodes values of one type."""

    def __init__(self, type_: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_)

    def decode(self, data: bytes | bytearray | msgspec.Raw) -> T:
        """Return the value; raise one of `UNDECODABLE` if there is none."""
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError:
            text = bytes(data)
            if b"null" not in text:
                raise
            return self._decoder.decode(without_nulls(text))


def without_nulls(text: bytes) -> bytes:
    """Return a JSON text without the fields and elements that are null."""
    return _ENCODER.encode(_pruned(_ANYTHING.decode(text)))


def _pruned(value: Any) -> Any:  # Any: whatever JSON can say
    if isinstance(value, dict):
        return {key: _pruned(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_pruned(each) for each in value if each is not None]
    return value
