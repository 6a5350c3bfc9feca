# SPDX-License-Identifier: Apache-2.0
"""How the command ends: exit codes, and the errors that lead to them.

0    done; the answer is yes or needs none
1    cannot be done: no cluster, missing permissions, not installed; one line says why
2    the command line or a file is not understood
3    done, and the answer is no: a check failed, a plan was refused, a move failed
70   a bug; the traceback follows
130  interrupted with Ctrl-C

StartError (common.cli)
├── MissingPermission   names the verb and the resource
├── NotThere            the object that was asked about does not exist
├── UsageError          the command line or a file is not understood
└── Refused             done as far as possible, and the answer is no
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from common.cli import BUG, CANNOT_WORK, DONE, NOT_UNDERSTOOD, StartError
from common.visible import visible

ANSWER_IS_NO: Final = 3
INTERRUPTED: Final = 130

__all__ = [
    "ANSWER_IS_NO",
    "BUG",
    "CANNOT_WORK",
    "DONE",
    "INTERRUPTED",
    "NOT_UNDERSTOOD",
    "MissingPermission",
    "NotThere",
    "Refused",
    "UsageError",
    "near",
]

_NEAR: Final = 3
_ALIKE: Final = 0.7
VIEWER: Final = "evenkeel-viewer"


class MissingPermission(StartError):
    """The caller may not do what the command needs."""

    def __init__(self, needed: Iterable[str], *, grants: str = VIEWER) -> None:
        """`needed` are verbs with resources; `grants` is the ClusterRole that has them."""
        listed = ", ".join(needed)
        hint = f"; ClusterRole {grants} of deploy/ grants it" if grants else ""
        super().__init__(f"missing permission: {listed}{hint}")


class NotThere(StartError):
    """An object that was asked about does not exist."""

    def __init__(self, kind: str, name: str, near: Iterable[str] = ()) -> None:
        close = ", ".join(map(visible, near))
        super().__init__(
            f"there is no {kind} {visible(name)}" + (f"; did you mean {close}?" if close else "")
        )


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return names that may have been meant, judged without their namespaces."""
    short = name.rpartition("/")[2]
    by_short: dict[str, list[str]] = {}
    for each in known:
        by_short.setdefault(each.rpartition("/")[2], []).append(each)
    inside = [each for each in by_short if short and short in each]
    close = inside or difflib.get_close_matches(short, by_short, n=_NEAR, cutoff=_ALIKE)
    return [full for each in close[:_NEAR] for full in by_short[each]][:_NEAR]


class UsageError(StartError):
    """The command line or a file is not understood."""


class Refused(StartError):
    """The answer is no."""
