# SPDX-License-Identifier: Apache-2.0
"""Pods that leave crowded hosts, and free places for them: as many as can be sent at all.

A host gives so many of its pods, whichever of them find a place; a place takes one pod. This is a
flow, so a pod that is in the way goes to another place, or lets another pod of its host leave.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from common.cluster.records import NodeName, PodUid

Wishes = Mapping[PodUid, Collection[NodeName]]
"""Where each pod of a host could go, those that should leave first before others."""


class Seats:
    """The free places of hosts, and who takes them."""

    def __init__(self, free: Mapping[NodeName, int]) -> None:
        self._free = {name: number for name, number in free.items() if number > 0}
        self._on: dict[NodeName, list[PodUid]] = {name: [] for name in self._free}
        self._siblings: dict[PodUid, Wishes] = {}
        self.sent: dict[PodUid, NodeName] = {}

    @property
    def open(self) -> frozenset[NodeName]:
        """The hosts that had a free place."""
        return frozenset(self._free)

    def send(self, pods: Wishes, most: int) -> None:
        """Let so many of the pods of a host leave, as far as there are places for them."""
        self._siblings.update(dict.fromkeys(pods, pods))
        gone = 0
        while gone < most and self._one_of(pods, set(), set()):
            gone += 1

    def _one_of(self, pods: Wishes, tried: set[PodUid], asked: set[NodeName]) -> bool:
        waiting = [uid for uid in pods if uid not in self.sent]
        return any(self._place(uid, tried, asked) for uid in waiting if uid not in tried)

    def _place(self, uid: PodUid, tried: set[PodUid], asked: set[NodeName]) -> bool:
        tried.add(uid)
        for name in sorted(self._siblings[uid][uid]):
            if name not in self._free or name in asked:
                continue
            asked.add(name)
            there = self._on[name]
            if len(there) < self._free[name] or self._leaves(name, tried, asked):
                there.append(uid)
                self.sent[uid] = name
                return True
        return False

    def _leaves(self, name: NodeName, tried: set[PodUid], asked: set[NodeName]) -> bool:
        """Let one of a host's new pods go elsewhere, or stay and another of its old host leave."""
        for uid in self._on[name]:
            moved = uid not in tried and self._place(uid, tried, asked)
            if not moved and self._one_of(self._siblings[uid], tried, asked):
                del self.sent[uid]
                moved = True
            if moved:
                self._on[name].remove(uid)
                return True
        return False
