"""Why something is not done: a name for machines and words for people."""

from __future__ import annotations

import msgspec


class Refusal(msgspec.Struct, frozen=True, order=True, gc=False):
    """One reason against moving a pod, or against using a node."""

    name: str
    """CamelCase and constant, so that it can be counted: `DaemonSetPod`."""
    words: str
    """A full clause that a person understands without the docs."""
    for_good: bool = True
    """Waiting changes nothing; false means for now."""
