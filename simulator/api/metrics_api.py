# SPDX-License-Identifier: Apache-2.0
"""`metrics.k8s.io`: the measurements of a provider, served as metrics-server would.

Without a provider the group does not exist; a provider that fails makes it unavailable, like an
aggregated API that is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from common.cluster import selectors
from common.cluster.selectors import SelectorError
from common.kube.resources import NODE_METRICS, POD_METRICS, Resource
from simulator.api.errors import BadRequest, no_such_method, no_such_route, not_found
from simulator.api.storage import Json


class MetricsProvider(Protocol):
    """Measures nodes and pods; may raise a Refusal, for example Unavailable."""

    def is_registered(self) -> bool:
        """Return whether the API is registered, even if its server does not respond."""
        ...

    def node_metrics(self) -> Iterable[Json]:
        """Return NodeMetrics: metadata (name, labels), timestamp, window, usage."""
        ...

    def pod_metrics(self) -> Iterable[Json]:
        """Return PodMetrics: metadata (name, namespace, labels), timestamp, window, containers."""
        ...


def answer(
    provider: MetricsProvider, method: str, rest: Sequence[str], params: Mapping[str, str]
) -> Json:
    """Handle a request; `rest` is the path after the group version."""
    if method != "GET":
        raise no_such_method()
    if rest[0] == "nodes" and len(rest) <= 2:
        return _found(NODE_METRICS, provider.node_metrics(), rest[1:], None, params)
    if rest[0] == "pods" and len(rest) == 1:
        return _found(POD_METRICS, provider.pod_metrics(), (), None, params)
    if rest[0] == "namespaces" and 3 <= len(rest) <= 4 and rest[2] == "pods":
        return _found(POD_METRICS, provider.pod_metrics(), rest[3:], rest[1], params)
    raise no_such_route()


def _found(
    resource: Resource,
    measured: Iterable[Json],
    name: Sequence[str],
    namespace: str | None,
    params: Mapping[str, str],
) -> Json:
    typed = {"kind": resource.kind, "apiVersion": resource.api_version}
    here = [m for m in measured if not namespace or m["metadata"].get("namespace") == namespace]
    if not name:
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": {}}
        return {**head, "items": _selected(here, params)}
    for each in here:
        if each["metadata"]["name"] == name[0]:
            return {**typed, **each}
    raise not_found(resource, f"{namespace}/{name[0]}" if namespace else name[0])


def _selected(measured: list[Json], params: Mapping[str, str]) -> list[Json]:
    try:
        labels = selectors.parse(params.get("labelSelector", ""))
    except SelectorError as error:
        raise BadRequest(str(error)) from None
    chosen = [m for m in measured if labels.matches(m["metadata"].get("labels") or {})]
    return sorted(chosen, key=lambda m: (m["metadata"].get("namespace", ""), m["metadata"]["name"]))
