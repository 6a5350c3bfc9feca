# SPDX-License-Identifier: Apache-2.0
"""Copy-on-write maps: a snapshot of one is cheap.

A snapshot must not change under its reader, and must not cost a copy of everything that
exists. Both maps here return frozen views whose cost does not grow with what they
hold, and copy a small part when it is next written. The order of iteration is arbitrary
and differs between processes: callers that depend on an order must sort.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, ValuesView
from itertools import chain
from types import MappingProxyType
from typing import Final, Generic, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
G = TypeVar("G", bound=Hashable)
D = TypeVar("D")

_PARTS: Final = 1024
_MASK: Final = _PARTS - 1


class FrozenCowMap(Mapping[K, V]):
    """What a map held when it was frozen."""

    __slots__ = ("_length", "_parts")

    def __init__(self, parts: list[dict[K, V]], length: int) -> None:
        self._parts = parts
        self._length = length

    def __getitem__(self, key: K) -> V:
        return self._parts[hash(key) & _MASK][key]

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) & _MASK]

    # A mapping's own `get` raises and catches an error for each key that is missing.
    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: V | D | None = None, /) -> V | D | None:
        return self._parts[hash(key) & _MASK].get(key, default)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(filter(None, self._parts)) if self._length else iter(())

    def __len__(self) -> int:
        return self._length

    def values(self) -> ValuesView[V]:
        return _Values(self)


class _Values(ValuesView[V]):
    """The values part by part; a mapping's own view would look each key up again."""

    _mapping: FrozenCowMap[Hashable, V]

    def __iter__(self) -> Iterator[V]:
        found = self._mapping
        parts = filter(None, found._parts)
        return chain.from_iterable(map(dict.values, parts)) if found else iter(())


class CowMap(Generic[K, V]):
    """A dict in many parts; frozen views share them until they are written."""

    def __init__(self) -> None:
        # One empty part stands for all until they are written: most maps hold little, or nothing.
        self._parts: list[dict[K, V]] = [{}] * _PARTS
        self._shared = bytearray(b"\x01") * _PARTS
        self._length = 0
        self._frozen: FrozenCowMap[K, V] | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(filter(None, self._parts)) if self._length else iter(())

    def get(self, key: K) -> V | None:
        return self._parts[hash(key) & _MASK].get(key)

    def put(self, key: K, value: V) -> None:
        part = self._writable(key)
        self._length += key not in part
        part[key] = value

    def pop(self, key: K) -> V | None:
        if self.get(key) is None:
            return None
        self._length -= 1
        return self._writable(key).pop(key)

    def freeze(self) -> FrozenCowMap[K, V]:
        """Return what is held now; the same object while nothing is written."""
        if self._frozen is None:
            self._shared = bytearray(b"\x01") * _PARTS
            self._frozen = FrozenCowMap(self._parts.copy(), self._length)
        return self._frozen

    def _writable(self, key: K) -> dict[K, V]:
        self._frozen = None
        index = hash(key) & _MASK
        if self._shared[index]:
            self._parts[index] = self._parts[index].copy()
            self._shared[index] = 0
        return self._parts[index]


class CowGroups(Generic[G, K, V]):
    """Values filed under a group; empty groups vanish."""

    def __init__(self) -> None:
        self._groups: CowMap[G, dict[K, V]] = CowMap()
        self._own: set[G] = set()

    def get(self, group: G) -> Mapping[K, V]:
        """Return the members of a group as they are now; none of an unknown one."""
        return self._groups.get(group) or MappingProxyType({})

    def put(self, group: G, key: K, value: V) -> None:
        self._writable(group)[key] = value

    def pop(self, group: G, key: K) -> None:
        members = self._writable(group)
        members.pop(key, None)
        if not members:
            self._groups.pop(group)
            self._own.discard(group)

    def freeze(self) -> FrozenCowGroups[G, K, V]:
        self._own.clear()
        return FrozenCowGroups(self._groups.freeze())

    def _writable(self, group: G) -> dict[K, V]:
        members = self._groups.get(group)
        if members is None or group not in self._own:
            members = {} if members is None else members.copy()
            self._groups.put(group, members)
            self._own.add(group)
        return members


class FrozenCowGroups(Generic[G, K, V]):
    """What the groups held when they were frozen."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Mapping[G, dict[K, V]]) -> None:
        self._groups = groups

    def __getitem__(self, group: G) -> Mapping[K, V]:
        """Return the members of a group; none of an unknown one."""
        return self._groups.get(group) or MappingProxyType({})

    def __iter__(self) -> Iterator[G]:
        return iter(self._groups)
