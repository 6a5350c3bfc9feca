# SPDX-License-Identifier: Apache-2.0
"""Answers for people and for machines: `-o text|wide|json|yaml`.

JSON and YAML carry `apiVersion` and `kind` and the whole document; text shows what a person
reads first. Names come from the cluster and may contain anything: nothing is printed that a
terminal would act on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from common.api.contract import API_VERSION
from common.terminal import print_out
from common.visible import visible_json
from console.data import NodeCell

if TYPE_CHECKING:
    from rich.console import RenderableType


class Output(StrEnum):
    """How an answer is written."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def for_people(self) -> bool:
        return self in (Output.TEXT, Output.WIDE)

    @property
    def wide(self) -> bool:
        return self is Output.WIDE


_CELL_FIELDS: Final = {
    name: "".join(part if i == 0 else part.title() for i, part in enumerate(name.split("_")))
    for name in NodeCell.__struct_fields__
}


def emit(kind: str, document: Any, output: Output, text: Callable[[], RenderableType]) -> None:
    """Print a document on stdout."""
    if output.for_people:
        print_out(text())
        sys.stdout.flush()  # the command may go on
        return
    whole = {"apiVersion": API_VERSION, "kind": kind, **plain(document)}
    sys.stdout.write(as_json(whole) if output is Output.JSON else as_yaml(whole))
    sys.stdout.flush()


def plain(document: Any) -> dict[str, Any]:
    """Return a document as JSON knows it; nodes are objects here."""
    found = document if isinstance(document, dict) else _fields(document)
    return {key: _plain(value) for key, value in found.items()}


def _fields(document: msgspec.Struct) -> dict[str, Any]:
    names = zip(document.__struct_fields__, document.__struct_encode_fields__, strict=True)
    return {written: getattr(document, name) for name, written in names}


def _plain(value: Any) -> Any:
    if isinstance(value, NodeCell):
        return {said: _plain(getattr(value, name)) for name, said in _CELL_FIELDS.items()}
    if isinstance(value, msgspec.Struct):
        return plain(value)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return msgspec.to_builtins(value)


def as_json(value: Any) -> str:
    """Return JSON that a terminal can show."""
    encoded = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return visible_json(encoded) + "\n"


def as_yaml(value: Any) -> str:
    """Return YAML that a terminal can show: what is not ASCII is escaped."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=1_000_000)
