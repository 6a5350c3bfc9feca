"""Why a pod may not run on a node."""

from __future__ import annotations

import msgspec


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """One reason, named for programs and worded for people as kube-scheduler words it."""

    plugin: str
    """The plugin of kube-scheduler that would say so."""
    name: str
    words: str
    curable: bool = False
    """Other pods leaving the node could make it go away (preemption may help)."""
    everywhere: bool = False
    """Holds for the pod itself, before any node is looked at."""

    def __str__(self) -> str:
        return self.words


Refusals = tuple[Refusal, ...]

NONE: Refusals = ()
