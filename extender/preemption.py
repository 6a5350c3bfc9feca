"""Where preemption may go ahead.

Preemption tries nodes with the scheduler's own rules and never asks our filter. A candidate
that the filter will refuse must be dropped here, otherwise pods die for a node that the
preemptor then cannot have. An intent only takes its source away, and only while another
candidate remains: restricting the choice to the target would kill pods for a preference.
"""

from __future__ import annotations

from collections.abc import Collection, Set


def kept(
    candidates: Collection[str], *, maintenance: Set[str], tolerated: bool, source: str | None
) -> list[str]:
    """Return the candidates that stay, in their order; whether they have victims is all one."""
    allowed = [name for name in candidates if tolerated or name not in maintenance]
    elsewhere = [name for name in allowed if name != source]
    return elsewhere or allowed
