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


_TOLD = 200
"""Characters of an error that are shown; it may quote an object."""


def unjudgeable(error: Exception) -> Refusal:
    """Return the reason against moving a pod that could not be judged: it stays."""
    words = f"{type(error).__name__}: {error}"
    return Refusal("Unjudgeable", f"judging it failed with {words[:_TOLD]}", for_good=False)
