# SPDX-License-Identifier: Apache-2.0
"""Patches: merge (RFC 7396), JSON (RFC 6902) and strategic merge.

The results share parts with the object that was patched and never change it. Errors are
those of apiserver/pkg/endpoints/handlers/patch.go (v0.36); a JSON patch that cannot be
applied is a 422 without a specific message, as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from common.kube.api import PatchKind
from simulator.api.errors import BadRequest, Invalid, TooLarge, UnsupportedMedia
from simulator.api.storage import Json
from simulator.api.strategic import strategic_merge

APPLY: Final = ("application/apply-patch+yaml", "application/apply-patch+cbor")
_MAX_OPERATIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Patch:
    """A decoded patch."""

    kind: PatchKind
    body: Any


def kind_of(content_type: str, *, custom: bool) -> PatchKind:
    """Return the type of a patch, or reject its content type."""
    media = content_type.partition(";")[0].strip()
    try:
        kind = PatchKind(media)
    except ValueError:
        raise _unsupported(media, custom=custom) from None
    if custom and kind is PatchKind.STRATEGIC:
        raise _unsupported(media, custom=custom)
    return kind


def _unsupported(media: str, *, custom: bool) -> UnsupportedMedia:
    known = [PatchKind.JSON, PatchKind.MERGE] + ([] if custom else [PatchKind.STRATEGIC])
    listed = ", ".join(known)
    message = "the body of the request was in an unknown format - accepted media types include: "
    if media in APPLY:
        message = (
            "the simulator does not support server-side apply - accepted media types include: "
        )
    return UnsupportedMedia(f"{message}{listed}")


def apply_patch(patch: Patch, obj: Json) -> Json:
    """Return the patched object."""
    if patch.kind is PatchKind.JSON:
        return _json_patched(patch.body, obj)
    if not isinstance(patch.body, dict):
        raise BadRequest("error decoding patch: an object is wanted")
    if patch.kind is PatchKind.STRATEGIC:
        return strategic_merge(obj, patch.body)
    merged: Json = merge(obj, patch.body)
    return merged


def merge(target: Any, patch: Any) -> Any:
    """Return a merge patch's result: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value)
    return made


def _json_patched(operations: Any, obj: Json) -> Json:
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a list of operations is wanted")
    if len(operations) > _MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got "
        raise TooLarge(f"{message}{len(operations)}")
    made: Any = obj
    for operation in operations:
        made = _operated(made, operation)
    if not isinstance(made, dict):
        raise _rejected()
    return made


def _rejected() -> Invalid:
    message = "the server rejected our request due to an error in our request"
    return Invalid(message, details={})


def _operated(document: Any, operation: Any) -> Any:
    try:
        name, path = operation["op"], _pointer(operation["path"])
        if name in ("add", "replace"):
            return _put(document, path, operation["value"], insert=name == "add")
        if name == "remove":
            return _removed(document, path)
        if name == "test":
            if _found(document, path) != operation.get("value"):
                raise _rejected()
            return document
        source = _pointer(operation["from"])
        value = _found(document, source)
        if name == "move":
            document = _removed(document, source)
        elif name != "copy":
            raise _rejected()
        return _put(document, path, value, insert=True)
    except (KeyError, IndexError, TypeError, ValueError):
        raise _rejected() from None


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _found(document: Any, path: list[str]) -> Any:
    for part in path:
        document = (
            document[_index(part, len(document))] if isinstance(document, list) else document[part]
        )
    return document


def _index(part: str, length: int) -> int:
    index = int(part)
    if not 0 <= index < length or part != str(index):
        raise IndexError(part)
    return index


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    """Return the document with a value in a place whose parent must exist."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(document, list):
        made = list(document)
        if rest:
            index = _index(part, len(made))
            made[index] = _put(made[index], rest, value, insert=insert)
        elif insert:
            made.insert(len(made) if part == "-" else _index(part, len(made) + 1), value)
        else:
            made[_index(part, len(made))] = value
        return made
    # Replacing a missing value adds it, as in evanphx/json-patch of the real server.
    below = _put(document[part], rest, value, insert=insert) if rest else value
    return {**document, part: below}


def _removed(document: Any, path: list[str]) -> Any:
    part, rest = path[0], path[1:]
    if isinstance(document, list):
        index = _index(part, len(document))
        kept = [_removed(document[index], rest)] if rest else []
        return [*document[:index], *kept, *document[index + 1 :]]
    below = document[part]
    if rest:
        return {**document, part: _removed(below, rest)}
    return {key: value for key, value in document.items() if key != part}
