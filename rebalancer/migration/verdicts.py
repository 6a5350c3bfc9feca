# SPDX-License-Identifier: Apache-2.0
"""What the state machine decides and what a step returns, as plain values.

A step returns a `Verdict`; the state machine returns a `Next`. None of them is an exception:
a refusal, a wait and an early end are ordinary.
"""

from __future__ import annotations

import msgspec

from common.api.migrations import Outcome, Step, SurgeState
from rebalancer.refusals import Refusal


class Proceed(msgspec.Struct, frozen=True):
    """The step is done; its condition becomes True with this reason."""

    reason: str
    """CamelCase: `CoveredByPdb`."""
    message: str = ""
    surge: SurgeState | None = None
    """What a step of a surge found, or left."""


class Wait(msgspec.Struct, frozen=True):
    """Not now: reconcile again when something changes, or after `retry_s` at the latest."""

    reason: Refusal
    retry_s: float | None = None
    """None leaves it to the controller."""
    failed_attempt: bool = False
    """Something was tried and failed; `maxAttempts` of these fail the Migration."""
    step: Step | None = None
    """Whose condition gives the reason, if it is not the step that returned this."""


class Fail(msgspec.Struct, frozen=True):
    """The move is given up: what was done is undone, and the phase becomes Failed."""

    reason: Refusal
    step: Step | None = None
    """Whose condition gives the reason, if it is not the step that returned this."""
    cause: Refusal | None = None
    """What the condition says, where that is more precise than the reason."""


class NotReplaced(msgspec.Struct, frozen=True):
    """No replacement is needed any more; the Migration completes with that outcome."""

    reason: str
    message: str


Verdict = Proceed | Wait | Fail | NotReplaced
"""What a step returns."""


class Do(msgspec.Struct, frozen=True):
    """Run this step."""

    step: Step


class Finish(msgspec.Struct, frozen=True):
    """The replacement is Ready: complete with this outcome."""

    outcome: Outcome
    message: str


class Hold(msgspec.Struct, frozen=True):
    """The next steps may have to be undone: the Migration gets a finalizer."""


class Release(msgspec.Struct, frozen=True):
    """Nothing has to be undone any more: the finalizer of the Migration can go."""


class StartGuiding(msgspec.Struct, frozen=True):
    """The API server is to send the replacement to its target: the Migration gets a label."""


class StopGuiding(msgspec.Struct, frozen=True):
    """The move is over, and its label can go."""


class Remove(msgspec.Struct, frozen=True):
    """The finished Migration has been kept long enough."""


class Rest(msgspec.Struct, frozen=True):
    """Nothing is left to do until this many seconds have passed."""

    seconds: float


Next = (
    Do
    | Wait
    | Fail
    | NotReplaced
    | Finish
    | Hold
    | Release
    | StartGuiding
    | StopGuiding
    | Remove
    | Rest
)
"""What the state machine returns."""
