# SPDX-License-Identifier: Apache-2.0
"""The form of returned objects: whole, only their metadata, or as table rows.

The Accept header lists what the client prefers, best first; the first form that is supported
is used, as on the real server. Whole objects are encoded once per version, for all clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from common.clock import Clock
from simulator.api.errors import NotAcceptable, Refusal
from simulator.api.kind import Kind
from simulator.api.kubectl.tables import Columns, columns_of
from simulator.api.lists import Page
from simulator.api.objects import data_of, shown_as
from simulator.api.storage import Entry, Json

_META_GROUP: Final = "meta.k8s.io"
_JSON: Final = ("application/json", "application/*", "*/*")
_encode: Final = msgspec.json.Encoder().encode


class Presenter:
    """Shows objects whole."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.plain = kind.alias is None
        typed = {"kind": kind.resource.kind, "apiVersion": kind.resource.api_version}
        self._type_length = 0 if kind.custom else len(_encode(typed))

    def item(self, entry: Entry) -> bytes:
        """Return one object."""
        return data_of(self.kind, entry)

    def page(self, page: Page) -> bytes:
        """Return a page of a list."""
        resource = self.kind.resource
        head = _encode(
            {
                "kind": self.kind.list_kind,
                "apiVersion": resource.api_version,
                "metadata": list_metadata(page),
            }
        )
        return head[:-1] + b',"items":[' + b",".join(map(self._listed, page.entries)) + b"]}"

    def _listed(self, entry: Entry) -> bytes:
        """Return an object without its type, which lists of built-in kinds contain once."""
        data = self.item(entry)
        return b"{" + data[self._type_length :] if self._type_length else data

    def bookmark(self, obj: Json) -> bytes:
        """Return the object of a bookmark."""
        return _encode(obj)

    def error(self, error: Refusal) -> bytes:
        """Return the object of an error in a watch."""
        return _encode(error.status())


class MetadataPresenter(Presenter):
    """Shows only the metadata of objects."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.plain = False

    def item(self, entry: Entry) -> bytes:
        return _encode(partial(shown_as(self.kind, entry.obj)))

    def page(self, page: Page) -> bytes:
        items = [partial(shown_as(self.kind, entry.obj)) for entry in page.entries]
        return _encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"{_META_GROUP}/v1",
                "metadata": list_metadata(page),
                "items": items,
            }
        )


class TablePresenter(Presenter):
    """Shows objects as rows, for `kubectl get`."""

    def __init__(self, kind: Kind, clock: Clock) -> None:
        super().__init__(kind)
        self.plain = False
        self._columns: Columns = columns_of(kind)
        self._clock = clock
        self._introduced = False

    def item(self, entry: Entry) -> bytes:
        return self._table([entry], {"resourceVersion": str(entry.version)})

    def page(self, page: Page) -> bytes:
        return self._table(page.entries, list_metadata(page))

    def bookmark(self, obj: Json) -> bytes:
        # A client would ignore an empty table that has the version only in its metadata.
        row = {"cells": [""] * len(self._columns.headers), "object": obj}
        return _encode(self._whole([row], dict(obj["metadata"])))

    def _table(self, entries: Sequence[Entry], metadata: Json) -> bytes:
        now = self._clock.now()
        rows = [self._row(shown_as(self.kind, entry.obj), now) for entry in entries]
        return _encode(self._whole(rows, metadata))

    def _row(self, obj: Json, now: float) -> Json:
        return {"cells": self._columns.cells(obj, now), "object": partial(obj)}

    def _whole(self, rows: list[Json], metadata: Json) -> Json:
        table: Json = {"kind": "Table", "apiVersion": f"{_META_GROUP}/v1", "metadata": metadata}
        # A watch sends its columns once; kubectl keeps them for the following events.
        headers = [] if self._introduced else self._columns.definitions()
        self._introduced = True
        return {**table, "columnDefinitions": headers, "rows": rows}


def partial(obj: Json) -> Json:
    """Return the metadata of an object as an object of its own."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{_META_GROUP}/v1",
        "metadata": obj["metadata"],
    }


def list_metadata(page: Page) -> Json:
    """Return the metadata of a list."""
    metadata: Json = {"resourceVersion": str(page.version)}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def presenter_of(accept: str, kind: Kind, clock: Clock) -> Presenter:
    """Return the best form that a client accepts."""
    if not accept or accept == "application/json":
        return Presenter(kind)
    for choice in accept.split(","):
        media, *rest = (part.strip() for part in choice.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        if media in _JSON:
            found = _form(parameters, kind, clock)
            if found is not None:
                return found
    message = "only the following media types are accepted: application/json"
    raise NotAcceptable(message, details={})


def _form(parameters: Mapping[str, Any], kind: Kind, clock: Clock) -> Presenter | None:
    wanted = parameters.get("as")
    if wanted is None:
        return Presenter(kind)
    if parameters.get("g") != _META_GROUP or parameters.get("v") != "v1":
        return None
    if wanted == "Table":
        return TablePresenter(kind, clock)
    return MetadataPresenter(kind) if wanted.startswith("PartialObjectMetadata") else None
