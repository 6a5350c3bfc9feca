# SPDX-License-Identifier: Apache-2.0
"""The configuration while the program runs: the content of the file is polled.

The kubelet updates a mounted ConfigMap by replacing a symbolic link
(pkg/volume/util/atomic_writer.go), which a watch of the file does not see, so the content is
read again every few seconds. A file that cannot be used is refused with its errors, and the
configuration in force stays. Keys that are read only at the start keep their values until a
restart, and are logged.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, Final

import structlog

from common.clock import Clock
from common.config import ConfigError, Mode, RebalancerConfiguration, differences, load_config
from common.metrics import Metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

POLL_S: Final = 2.0
FIXED: Final = (
    "client_connection",
    "console",
    "leader_election",
    "reading",
    "usage_source",
    "usage_interval",
    "prometheus",
    "metric_expiry",
    "clock_skew",
    "smoothing",
    "load",
    "pressure",
    "estimates",
)
"""Keys whose readers are made once, at the start."""

Changed = Callable[[RebalancerConfiguration], None]


class ConfigSource:
    """Holds the configuration in force; users read `current` again at each use."""

    def __init__(
        self,
        path: str | None,
        first: RebalancerConfiguration,
        *,
        clock: Clock,
        metrics: Metrics,
        mode: Mode | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        """Follow the file at `path`; a `mode` that a flag has set outlives every change of it."""
        self.current = in_mode(first, mode)
        self._mode = mode
        self._path = path
        self._clock = clock
        self._poll_s = poll_s
        self._listeners: list[Changed] = []
        self._content: bytes | None = None
        self._complaint: tuple[str, ...] = ()
        self._reloads = metrics.counter(
            "config_reloads_total", "Changes of the configuration file, by result.", ("result",)
        )
        self._refused = metrics.gauge(
            "config_refused",
            "1 while the configuration file cannot be used and an older one is in force.",
        )

    def get(self) -> RebalancerConfiguration:
        """Return the configuration in force."""
        return self.current

    def listen(self, listener: Changed) -> None:
        """Call `listener` after each change, once it is in force."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Follow the file until canceled; without a file nothing changes."""
        if self._path is None:
            return
        self._content = await asyncio.to_thread(_digest, self._path)
        # It may have changed since the program started with it.
        await self._load(self._path)
        while True:
            await self._clock.sleep(self._poll_s)
            await self.poll()

    async def poll(self) -> None:
        """Load the file again if its content has changed, or could not be used."""
        if self._path is None:
            return
        content = await asyncio.to_thread(_digest, self._path)
        # Loading reads the file a second time, and that may have failed.
        if content != self._content or self._complaint:
            self._content = content
            await self._load(self._path)

    async def _load(self, path: str) -> None:
        try:
            wanted = await asyncio.to_thread(load_config, path, RebalancerConfiguration)
        except ConfigError as error:
            self._refuse(error)
            return
        self._refused.set(0)
        self._complaint = ()
        self._use(in_mode(wanted, self._mode))

    def _refuse(self, error: ConfigError) -> None:
        self._refused.set(1)
        if error.problems == self._complaint:
            return
        self._complaint = error.problems
        self._reloads.labels("refused").inc()
        for problem in error.problems:
            log.error("configuration refused; the old one stays in force", problem=problem)

    def _use(self, wanted: RebalancerConfiguration) -> None:
        fixed = needs_restart(self.current, wanted)
        if fixed:
            log.warning("a restart is needed for some keys", keys=list(fixed))
        new = merged(self.current, wanted)
        if new == self.current:
            return
        changed = differences(self.current, new)
        self.current = new
        self._reloads.labels("applied").inc()
        log.info("configuration changed", changed=changed)
        for listener in self._listeners:
            listener(new)


def in_mode(config: RebalancerConfiguration, mode: Mode | None) -> RebalancerConfiguration:
    """Return the configuration with the mode of a flag; None leaves it as it is.

    `observe` moves nothing, whatever pools and namespaces say. `act` leaves alone the strategies
    that are set to observe.
    """
    if mode is None:
        return config
    if mode is Mode.ACT:
        return config.model_copy(update={"mode": mode})
    silent: dict[str, Any] = {"modes": {}}
    return config.model_copy(
        update={
            "mode": mode,
            "modes": {},
            "pools": tuple(pool.model_copy(update=silent) for pool in config.pools),
            "namespaces": tuple(rule.model_copy(update=silent) for rule in config.namespaces),
        }
    )


def needs_restart(old: RebalancerConfiguration, new: RebalancerConfiguration) -> tuple[str, ...]:
    """Return the changed keys that take effect only after a restart, as a file spells them."""
    fields = RebalancerConfiguration.model_fields
    changed = (name for name in FIXED if getattr(old, name) != getattr(new, name))
    return tuple(str(fields[name].alias) for name in changed)


def merged(old: RebalancerConfiguration, new: RebalancerConfiguration) -> RebalancerConfiguration:
    """Return the new configuration with the old values of the keys that need a restart."""
    kept: dict[str, Any] = {name: getattr(old, name) for name in FIXED}
    return new.model_copy(update=kept)


def _digest(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).digest()
    except OSError:
        # Loading reports what is wrong with it.
        return None
