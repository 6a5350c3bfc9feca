# SPDX-License-Identifier: Apache-2.0
"""Extenders over HTTP: the client side of the contract.

Follows pkg/scheduler/extender.go of v1.36. Only a 200 counts; a timeout covers the whole
call; connections are kept. The scheduler decides what a failed call means, because that differs
between the verbs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import aiohttp

from common.clock import Clock, within
from simulator.api import Json
from simulator.scheduler import wire
from simulator.scheduler.config import ExtenderConfig, TlsConfig
from simulator.scheduler.wire import FilterAnswer, HostScore, Victims, WireError

_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
    "User-Agent": "Go-http-client/1.1",
}
_SCALE: Final = 10
"""Weight of one point of an extender: MaxNodeScore divided by MaxExtenderPriority."""

A = TypeVar("A")
NodeOf = Callable[[str], Json]
"""Returns a node by its name."""


class ExtenderError(Exception):
    """A failed call to an extender."""


class Extender:
    """One configured extender."""

    def __init__(self, config: ExtenderConfig, *, clock: Clock) -> None:
        self.config = config
        self.name = config.url_prefix
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    @property
    def filters(self) -> bool:
        return bool(self.config.filter_verb)

    @property
    def prioritizes(self) -> bool:
        return bool(self.config.prioritize_verb)

    @property
    def ignorable(self) -> bool:
        return self.config.ignorable

    def is_interested(self, pod: Json) -> bool:
        """Return whether a pod requests a resource that this extender manages."""
        managed = {each.name for each in self.config.managed_resources}
        if not managed:
            return True
        spec = pod["spec"]
        containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for container in containers:
            resources = container.get("resources") or {}
            asked = {*(resources.get("requests") or ()), *(resources.get("limits") or ())}
            if asked & managed:
                return True
        return False

    async def filter(
        self, pod: Json, names: Sequence[str], node_of: NodeOf
    ) -> tuple[list[str], FilterAnswer]:
        """Return the nodes that passed the extender, and its whole answer."""
        body = self._arguments(pod, names, node_of)
        answer = await self._call(self.config.filter_verb, body, wire.filter_answer)
        if answer.error:
            raise ExtenderError(answer.error)
        if self.config.node_cache_capable and answer.node_names is not None:
            known = set(names)
            for name in answer.node_names:
                if name not in known:
                    message = f'extender "{self.name}" claims a filtered node "{name}" which is '
                    raise ExtenderError(message + "not found in the input node list")
            return list(answer.node_names), answer
        # Whole nodes are accepted, even unknown ones.
        given = answer.nodes or ()
        return [(node.get("metadata") or {}).get("name", "") for node in given], answer

    async def scores(self, pod: Json, names: Sequence[str], node_of: NodeOf) -> list[HostScore]:
        """Return the extender's scores, on the scheduler's scale and weighted."""
        if not self.prioritizes:
            return [HostScore(name, 0) for name in names]
        body = self._arguments(pod, names, node_of)
        given = await self._call(self.config.prioritize_verb, body, wire.scores_answer)
        weight = self.config.weight * _SCALE
        return [HostScore(each.host, each.score * weight) for each in given]

    async def preempt(
        self, pod: Json, victims: Mapping[str, Victims], pods: Mapping[str, Sequence[Json]]
    ) -> dict[str, Victims]:
        """Return the victims that the extender accepts."""
        full = None if self.config.node_cache_capable else pods
        body = wire.preemption_arguments(pod, victims, full)
        return await self._call(self.config.preempt_verb, body, wire.victims_answer)

    async def bind(self, pod: Json, node: str) -> None:
        """Have the extender bind a pod."""
        body = wire.binding_arguments(pod, node)
        error = await self._call(self.config.bind_verb, body, wire.binding_answer)
        if error:
            raise ExtenderError(error)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _arguments(self, pod: Json, names: Sequence[str], node_of: NodeOf) -> bytes:
        if self.config.node_cache_capable:
            return wire.arguments(pod, names, None)
        return wire.arguments(pod, None, [node_of(name) for name in names])

    async def _call(self, verb: str, body: bytes, read: Callable[[bytes], A]) -> A:
        url = f"{self.config.url_prefix.rstrip('/')}/{verb}"
        try:
            status, answer = await within(self._clock, self.config.timeout_s, self._post(url, body))
        except TimeoutError:
            raise ExtenderError(f'Post "{url}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise ExtenderError(f'Post "{url}": {error}') from None
        if status != 200:
            message = f"failed {verb} with extender at URL {url}, code {status}"
            raise ExtenderError(message)
        try:
            return read(answer)
        except WireError as error:
            raise ExtenderError(str(error)) from None

    async def _post(self, url: str, body: bytes) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(ssl=_ssl(self.config), keepalive_timeout=90.0),
            )
        async with self._session.post(url, data=body, headers=_HEADERS) as response:
            return response.status, await response.read()


def extenders_of(configs: Sequence[ExtenderConfig], *, clock: Clock) -> list[Extender]:
    """Return the extenders in the order of their calls: ignorable ones last."""
    ordered = sorted(configs, key=lambda config: config.ignorable)
    return [Extender(config, clock=clock) for config in ordered]


def _ssl(config: ExtenderConfig) -> ssl.SSLContext | bool:
    """Return how certificates are checked; without a CA, `enableHTTPS` checks nothing."""
    tls = config.tls_config or TlsConfig()
    unchecked = tls.insecure or (config.enable_https and not tls.ca_file)
    if not config.url_prefix.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if unchecked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
    return context
