"""Long work in a thread stops for breath between its pieces, for whatever is more urgent.

Python runs one thread at a time: who is answering somebody would wait for a thread that
reads tens of megabytes. Whoever starts such work may hand it a function that pauses.
"""

from __future__ import annotations

from collections.abc import Callable

Breathe = Callable[[], None]
"""Called between small pieces of work, in the thread that does it."""


def go_on() -> None:
    """Nothing is more urgent."""
