# SPDX-License-Identifier: Apache-2.0
"""On the wire `null` is absent, whichever field of whichever kind it stands for."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from common.api.objects import Node, Object, Pod
from common.cache.reader import CACHED_KINDS, MIGRATION_KIND, CachedKind, lease_kind
from common.cache.state import ClusterState
from common.cluster.interning import Interner
from common.cluster.records import node_record, pod_record
from common.kube.envelopes import Broken, ObjectDecoder
from common.null_json import UNDECODABLE, JsonDecoder
from tests.support.worlds.null_fields import absent, full, nulled, paths

ALL = (*CACHED_KINDS, MIGRATION_KIND, lease_kind("evenkeel"))
STATE = ClusterState()
"""One for all: making one takes longer than everything else here."""


@cache
def decoder_of(type_: type[Object]) -> ObjectDecoder[Object]:
    return ObjectDecoder(type_)


def recorded(reading: CachedKind, document: Any) -> Any:
    """Return what the cache keeps of a document, or in words why nothing."""
    found = decoder_of(reading.type_).one(msgspec.Raw(msgspec.json.encode(document)))
    if isinstance(found, Broken):
        return found
    table: Any = reading.table(STATE)
    try:
        table.upsert(found)
    except ValueError as error:
        return f"ValueError: {error}"
    kept = {key: table.records.get(key) for key in table.keys()}  # noqa: SIM118
    for key in kept:
        table.forget(key)
    return kept


@pytest.mark.parametrize("reading", ALL, ids=lambda reading: reading.resource.kind)
def test_null_means_the_same_as_nothing(reading: CachedKind) -> None:
    document = full(reading.type_)
    whole = recorded(reading, document)
    assert isinstance(whole, dict), whole
    for path in paths(document):
        null, nothing = recorded(reading, nulled(document, path)), absent(document, path)
        assert null == recorded(reading, nothing), path


@pytest.mark.parametrize("reading", CACHED_KINDS, ids=lambda reading: reading.resource.kind)
def test_only_without_metadata_is_an_object_unreadable(reading: CachedKind) -> None:
    document = full(reading.type_)
    unreadable = {
        path
        for path in paths(document)
        if isinstance(recorded(reading, nulled(document, path)), Broken)
    }
    assert unreadable == {("metadata",)}


def test_a_quantity_may_be_a_number() -> None:
    pod = JsonDecoder(Pod).decode(
        b'{"metadata":{"name":"p"},"spec":{"containers":[{"resources":{"requests":'
        b'{"cpu":0.5,"memory":1024,"x.io/y":3}}}]}}'
    )
    requests = pod_record(pod, Interner()).requests
    assert (requests.cpu_milli, requests.mem_bytes) == (500, 1024)
    assert requests.scalars == (("x.io/y", 3),)
    node = JsonDecoder(Node).decode(
        b'{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":2,"pods":110.0}}}'
    )
    record = node_record(node, Interner())
    assert (record.allocatable.cpu_milli, record.max_pods) == (2000, 110)


def test_numbers_beside_a_null_keep_their_text() -> None:
    decoder = JsonDecoder(_Exact)
    found = decoder.decode(b'{"name":null,"amount":0.10000000000000000001,"other":1e400}')
    assert (found.name, bytes(found.amount)) == ("none", b"0.10000000000000000001")
    assert bytes(found.other) == b"1e400"


@pytest.mark.parametrize(
    "text", [b'"\xff null"', b"[" * 100_000 + b"null", b'{"name":[null', b'{"name":[null]}']
)
def test_what_is_wrong_besides_a_null_stays_wrong(text: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        JsonDecoder(_Exact).decode(text)


class _Exact(msgspec.Struct):
    name: str = "none"
    amount: msgspec.Raw = msgspec.Raw(b"0")
    other: msgspec.Raw = msgspec.Raw(b"0")
