# SPDX-License-Identifier: Apache-2.0
"""What people wrote for older versions, and how it is read today.

A key that was renamed or has no effect any more, and an older `apiVersion`, are converted, with
one warning each that names the line and what to write instead. They are refused like any unknown
key from the release on that `FormerKey.until` names; `docs/upgrading.md` promises how long that
is. A newer `apiVersion` is always refused: what it means is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from common.api.contract import API_VERSION
from common.config.document import Document, Problem

Values = dict[str, Any]


class FormerKey(NamedTuple):
    """A key at the top of a file that older versions had."""

    name: str
    until: str
    """The release that refuses it."""
    why: str
    """What became of it, as a clause."""
    renamed: str = ""
    """Where its value goes today; empty if it has no effect any more."""


class History(NamedTuple):
    """Everything that older files may have."""

    keys: tuple[FormerKey, ...] = ()
    api_versions: Mapping[str, Callable[[Values], Values]] = {}
    """What turns the values of a file of an older version into those of the current one."""


HISTORY: Final = History(
    keys=(FormerKey("peakDecay", until="0.3.0", why="peaks do not decide anything any more"),),
)


def converted(
    document: Document, values: Values, history: History = HISTORY
) -> tuple[Values, list[Problem]]:
    """Return the values as today's version writes them, and a warning for each conversion."""
    values, warnings = dict(values), []
    version = values.get("apiVersion")
    convert = history.api_versions.get(version) if isinstance(version, str) else None
    if convert is not None:
        values = convert(values) | {"apiVersion": API_VERSION}
        why = f"{version} is deprecated: write {API_VERSION}"
        warnings.append(Problem(document.line_of(("apiVersion",)), "apiVersion", why))
    for key in history.keys:
        # Both names at once are left to the check of unknown keys: one of them is a mistake.
        if key.name in values and (not key.renamed or key.renamed not in values):
            value, line = values.pop(key.name), document.line_of((key.name,))
            if key.renamed:
                values[key.renamed] = value
                document.lines.setdefault((key.renamed,), line)
            warnings.append(Problem(line, key.name, _advice(key)))
    return values, warnings


def _advice(key: FormerKey) -> str:
    what = f"write {key.renamed} instead" if key.renamed else "remove it"
    return f"is deprecated and refused from {key.until} on, because {key.why}: {what}"
