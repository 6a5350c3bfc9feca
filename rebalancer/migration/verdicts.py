"""What is said about a Migration: by whoever takes a step, and by the machine.

A step answers with a `Verdict`; the machine says with a `Next` what is to be done. Both are
plain values. None of them is an exception: a refusal, a wait and an end are ordinary.
"""

from __future__ import annotations

import msgspec

from common.cluster.migrations import Outcome, Step
from rebalancer.reasons import Refusal


class Proceed(msgspec.Struct, frozen=True):
    """The step is done; its condition comes true with this reason."""

    reason: str
    """CamelCase: `CoveredByPdb`."""
    words: str = ""


class Wait(msgspec.Struct, frozen=True):
    """Not now: look again when something changes, or after `retry_s` at the latest."""

    reason: Refusal
    retry_s: float | None = None
    """None leaves it to the controller."""
    counts: bool = False
    """Something was tried in vain; `maxAttempts` of these fail the Migration."""


class Fail(msgspec.Struct, frozen=True):
    """The move is given up: what was done is undone, and the phase becomes Failed."""

    reason: Refusal
    step: Step | None = None
    """Whose condition is to give the reason, if it is not the step that answers."""
    cause: Refusal | None = None
    """What the condition says, where that is more exact than the reason."""


class NotReplaced(msgspec.Struct, frozen=True):
    """Nobody needs a replacement any more; the Migration completes with that outcome."""

    reason: str
    words: str


Verdict = Proceed | Wait | Fail | NotReplaced
"""What a step answers."""


class Do(msgspec.Struct, frozen=True):
    """Take this step."""

    step: Step


class Hold(msgspec.Struct, frozen=True):
    """This step must wait: look again when something changes, or after `retry_s`."""

    step: Step
    reason: Refusal
    retry_s: float | None = None


class Finish(msgspec.Struct, frozen=True):
    """The replacement is Ready: complete with this outcome."""

    outcome: Outcome
    words: str


class Remove(msgspec.Struct, frozen=True):
    """The finished Migration has been kept long enough."""


class Rest(msgspec.Struct, frozen=True):
    """Nothing is left to be done before this many seconds have passed."""

    seconds: float


Next = Do | Hold | Fail | NotReplaced | Finish | Remove | Rest
"""What the machine says."""
