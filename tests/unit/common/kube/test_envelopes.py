# SPDX-License-Identifier: Apache-2.0
"""One bad object spoils only itself; what is no list never passes for an empty one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from common.kube.envelopes import Broken, ObjectDecoder, key_of, split_event, version_of
from common.kube.errors import Malformed


class Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str | None = None
    resource_version: str = ""


class Thing(msgspec.Struct):
    metadata: Meta
    size: int = 0


DECODER = ObjectDecoder(Thing)


def thing(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a", "resourceVersion": "7"}, **more}


def body(*items: Any) -> bytes:
    page = {"metadata": {"resourceVersion": "9", "continue": "next"}, "items": items}
    return json.dumps(page).encode()


def test_a_page_is_decoded_whole() -> None:
    page = DECODER.page(body(thing("x", size=1), thing("y")))
    assert (page.version, page.token, page.broken) == ("9", "next", [])
    assert [key_of(obj.metadata) for obj in page.objects] == ["a/x", "a/y"]


def test_a_bad_object_is_set_apart_with_its_name() -> None:
    page = DECODER.page(body(thing("x"), thing("bad", size="large"), thing("y")))
    assert [obj.metadata.name for obj in page.objects] == ["x", "y"]
    (broken,) = page.broken
    assert (broken.key, broken.version) == ("a/bad", "7")
    assert "size" in broken.why


@pytest.mark.parametrize("item", [5, None, [], {"metadata": 1}, {"metadata": {"name": 1}}, {}])
def test_an_object_without_a_readable_name_is_set_apart_too(item: Any) -> None:
    page = DECODER.page(body(item, thing("x")))
    assert [obj.metadata.name for obj in page.objects] == ["x"]
    assert len(page.broken) == 1


def test_go_writes_an_empty_list_as_null() -> None:
    page = DECODER.page(b'{"metadata":{"resourceVersion":"3"},"items":null}')
    assert (page.version, page.token, page.objects) == ("3", "", [])


@pytest.mark.parametrize(
    "answer",
    [b"", b"{}", b"[]", b"null", b'{"items":[]}', b'{"metadata":{}}', b"<html>", b"[" * 9999],
)
def test_what_is_no_list_is_not_an_empty_list(answer: bytes) -> None:
    with pytest.raises(Malformed, match="not a list"):
        DECODER.page(answer)


def test_an_event_is_split_into_type_and_object() -> None:
    type_, raw = split_event(json.dumps({"type": "ADDED", "object": thing("x")}).encode())
    found = DECODER.one(raw)
    assert type_ == "ADDED"
    assert not isinstance(found, Broken)
    assert found.metadata.name == "x"


@pytest.mark.parametrize("line", [b"", b"{}", b'{"type":"ADDED"}', b'{"type":"ADDED","obj', b"1"])
def test_a_line_that_is_no_event_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed, match="not an event"):
        split_event(line)


def test_text_that_is_not_unicode_breaks_only_its_object() -> None:
    good = json.dumps(thing("x")).encode()
    bad = b'{"metadata":{"name":"\xff"}}'
    page = DECODER.page(b'{"metadata":{"resourceVersion":"1"},"items":[%b,%b]}' % (bad, good))
    assert [obj.metadata.name for obj in page.objects] == ["x"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (b'{"kind":"Pod","metadata":{"resourceVersion":"12"}}', "12"),
        (b'{"metadata":{}}', ""),
        (b"5", ""),
    ],
)
def test_any_object_has_a_version_or_none(text: bytes, version: str) -> None:
    assert version_of(msgspec.Raw(text)) == version


def test_a_key_has_the_namespace_only_where_there_is_one() -> None:
    keys = [key_of(Meta("n")), key_of(Meta("n", "")), key_of(Meta("n", "s"))]
    assert keys == ["n", "n", "s/n"]
