# SPDX-License-Identifier: Apache-2.0
"""A token bucket, so that we never flood an API server.

Tokens are handed out in the order of requests: one that comes while the bucket is empty
reserves the next token and sleeps until it exists.
"""

from __future__ import annotations

from common.clock import Clock


class TokenBucket:
    """Lets `burst` through at once and `qps` a second after that; no limit if `qps` is 0."""

    def __init__(self, *, qps: float, burst: int, clock: Clock) -> None:
        if qps > 0 and burst < 1:
            raise ValueError("a burst below 1 would let nothing through")
        self._qps = qps
        self._burst = float(burst)
        self._clock = clock
        self._tokens = self._burst
        self._counted_at = clock.monotonic()

    async def take(self) -> None:
        """Return when the caller may go on."""
        if self._qps <= 0:
            return
        self._refill()
        self._tokens -= 1
        if self._tokens >= 0:
            return
        try:
            await self._clock.sleep(-self._tokens / self._qps)
        except BaseException:
            # A caller that gave up waiting must not slow down the others for ever.
            self._tokens += 1
            raise

    def _refill(self) -> None:
        now = self._clock.monotonic()
        earned = (now - self._counted_at) * self._qps
        self._tokens = min(self._burst, self._tokens + earned)
        self._counted_at = now
