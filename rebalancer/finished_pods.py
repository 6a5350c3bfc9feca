# SPDX-License-Identifier: Apache-2.0
"""The pods that have ended, read only where a rule of `Hygiene` could be about them.

They hold nothing, so no program watches them: thousands may lie around. A cycle lists those of
the phases that rules ask for, page by page and not more than `PAGES`, from the cache of the API
server. What cannot be parsed is left out; a list that fails is told in the plan, and nothing of
it is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import structlog

from common.api.objects import Pod
from common.cluster.interning import Interner
from common.cluster.records import PodRecord, pod_record
from common.config import Hygiene, RebalancerConfiguration, Rules, Strategy
from common.kube.api import KubeApi
from common.kube.envelopes import ObjectDecoder
from common.kube.errors import KubeError
from common.kube.reflector import MAX_PAGE_BYTES
from common.kube.resources import PODS

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PAGE: Final = 500
PAGES: Final = 20
_PAGES: Final = ObjectDecoder(Pod)
_FAILED: Final = "Failed"
_SUCCEEDED: Final = "Succeeded"


class Finished(NamedTuple):
    """Pods that have ended, and what went wrong while reading them."""

    pods: tuple[PodRecord, ...] = ()
    trouble: str = ""


NONE_FINISHED: Final = Finished()


class FinishedPods:
    """Lists the pods that have ended."""

    def __init__(self, client: KubeApi) -> None:
        self._client = client

    async def read(self, config: RebalancerConfiguration) -> Finished:
        """Return those that rules could be about; none where the strategy is off."""
        if Strategy.HYGIENE not in Rules(config).enabled_anywhere():
            return Finished()
        found: list[PodRecord] = []
        for phase in wanted_phases(config.hygiene):
            try:
                found += await self._in_phase(phase)
            except KubeError as error:
                return Finished(tuple(found), f"pods in phase {phase} are not read: {error}")
        return Finished(tuple(found))

    async def _in_phase(self, phase: str) -> list[PodRecord]:
        found: list[PodRecord] = []
        params = {"fieldSelector": f"status.phase={phase}", "limit": str(PAGE)}
        for _ in range(PAGES):
            body = await self._client.get(PODS.path(), params=params, max_bytes=MAX_PAGE_BYTES)
            page = _PAGES.page(body)
            found += _parsed(page.objects)
            if not page.token:
                break
            params = {**params, "continue": page.token}
        return found


def wanted_phases(settings: Hygiene) -> Iterator[str]:
    """Yield the phases that a rule could match; every state can be one of a failed pod."""
    if settings.failed_pods or settings.pod_life_time:
        yield _FAILED
    if settings.pod_life_time:
        yield _SUCCEEDED


def _parsed(pods: Iterable[Pod]) -> Iterator[PodRecord]:
    shared = Interner()
    for pod in pods:
        try:
            yield pod_record(pod, shared)
        except ValueError as error:
            log.info("object skipped", kind="Pod", name=pod.metadata.name, error=str(error))
