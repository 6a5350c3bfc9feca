# SPDX-License-Identifier: Apache-2.0
"""Which source is asked.

`auto` takes metrics-server if the cluster serves its API. An API that is registered but does
not answer just now counts as served: a source that fails makes nodes unknown as their samples
age, and never turns into `requests`, which would call an overloaded cluster level. Where the
API is not there at all, requests stand in for what is not measured; each user of them must
say so and must not act on them, and goes on asking whether there are metrics by now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from common.checkpoint import Checkpoint, no_checkpoint
from common.clock import Clock
from common.cluster.records import NodeRecord
from common.config import Pressure, Prometheus, SourceKind
from common.kube.api import KubeApi
from common.kube.errors import KubeError, NotFound, ServerError
from common.kube.resources import NODE_METRICS, POD_METRICS
from common.null_json import UNDECODABLE
from common.usage.metrics_server import MetricsServerSource
from common.usage.prometheus import PrometheusSource
from common.usage.requests import RequestsSource
from common.usage.source import SourceChoice, UsageError, UsageSource

_API: Final = f"/apis/{NODE_METRICS.api_version}"
_NEEDED: Final = frozenset({NODE_METRICS.plural, POD_METRICS.plural})


class _ApiResource(msgspec.Struct):
    name: str


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] | None = None


_RESOURCES: Final = msgspec.json.Decoder(_ApiResourceList)


async def choose_source(kind: SourceKind, client: KubeApi) -> SourceChoice:
    """Return the source that the configuration means; raise UsageError if that cannot be told."""
    if kind is not SourceKind.AUTO:
        return SourceChoice(configured=kind, asked=kind)
    served, why = await _metrics_are_served(client)
    asked = SourceKind.METRICS_SERVER if served else SourceKind.REQUESTS
    return SourceChoice(configured=kind, asked=asked, why=why)


@asynccontextmanager
async def open_source(
    kind: SourceKind,
    client: KubeApi,
    *,
    nodes: Callable[[], Iterable[NodeRecord]],
    prometheus: Prometheus | None = None,
    pressure: Pressure | None = None,
    clock: Clock,
    checkpoint: Checkpoint = no_checkpoint,
) -> AsyncIterator[UsageSource]:
    """Open the source that was chosen, which is not `auto`.

    `nodes` are the nodes known now; Prometheus names them in its own ways. `checkpoint` is
    called often while a large answer is read, in the thread that reads it.
    """
    if kind is SourceKind.PROMETHEUS:
        if prometheus is None:
            raise UsageError("prometheus: no address is configured")
        async with PrometheusSource(
            prometheus, nodes=nodes, clock=clock, checkpoint=checkpoint, pressure=pressure
        ) as source:
            yield source
    elif kind is SourceKind.REQUESTS:
        yield RequestsSource()
    else:
        yield MetricsServerSource(client, checkpoint=checkpoint)


async def _metrics_are_served(client: KubeApi) -> tuple[bool, str]:
    try:
        found = _RESOURCES.decode(await client.get(_API))
    except NotFound:
        return False, f"the cluster does not serve {_API}"
    except (KubeError, *UNDECODABLE) as error:
        # kube-aggregator's word for a registered API whose server is away (handler_proxy.go).
        if isinstance(error, ServerError) and error.status == 503:
            return True, f"{_API} is registered but does not answer"
        raise UsageError(f"auto: cannot tell whether {_API} is served: {error}") from error
    missing = _NEEDED - {resource.name for resource in found.resources or ()}
    if missing:
        return False, f"{_API} lacks {' and '.join(sorted(missing))}"
    return True, f"the cluster serves {_API}"
