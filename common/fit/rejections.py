# SPDX-License-Identifier: Apache-2.0
"""Why a pod may not run on a node."""

from __future__ import annotations

import msgspec


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """One reason, named for programs and worded for people as kube-scheduler words it."""

    plugin: str
    """The plugin of kube-scheduler that would say so."""
    name: str
    message: str
    resolvable: bool = False
    """Other pods leaving the node could resolve it: preemption may help."""
    everywhere: bool = False
    """Holds for the pod itself, before any node is checked (PreFilter)."""

    def __str__(self) -> str:
        return self.message


Rejections = tuple[Rejection, ...]

NONE: Rejections = ()
