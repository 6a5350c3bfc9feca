# SPDX-License-Identifier: Apache-2.0
"""Whether a namespace's ResourceQuotas have room for one more pod of a workload.

Asked before a count is raised, so that a surge which cannot succeed changes nothing. Quotas with
scopes are left to the API server: a pod that they forbid is not created, and the count is
lowered again. So are limits and other resources, which no record of a pod contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from common.api.objects import ResourceQuota
from common.cluster import quantities
from common.cluster.records import PodRecord
from common.kube.api import KubeApi
from common.kube.errors import KubeError
from common.kube.resources import RESOURCE_QUOTAS
from common.null_json import UNDECODABLE, JsonDecoder
from rebalancer.refusals import Reason, Refusal


class _Quotas(msgspec.Struct):
    items: list[ResourceQuota]


_LIST: Final = JsonDecoder(_Quotas)


async def quota_refusal(client: KubeApi, pod: PodRecord) -> Refusal | None:
    """Return which quota has no room; None also where quotas cannot be read."""
    try:
        body = await client.get(RESOURCE_QUOTAS.path(namespace=pod.namespace))
        return first_exceeded(_LIST.decode(body).items, pod)
    except (KubeError, quantities.QuantityError, *UNDECODABLE):
        return None


def first_exceeded(quotas: Iterable[ResourceQuota], pod: PodRecord) -> Refusal | None:
    """Return the first quota that one more pod like this would exceed."""
    needs = _needs(pod)
    for quota in quotas:
        if quota.spec.scopes or quota.spec.scope_selector:
            continue
        if resource := _exceeded(quota.status.hard or {}, quota.status.used or {}, needs):
            return Reason.AT_QUOTA.refusal(quota=quota.metadata.name, resource=resource)
    return None


def _exceeded(
    hard: Mapping[str, str], used: Mapping[str, str], needs: Mapping[str, int]
) -> str | None:
    for resource, limit in hard.items():
        if resource in needs:
            free = quantities.exact_milli(limit) - quantities.exact_milli(used.get(resource, "0"))
            if needs[resource] > free:
                return resource
    return None


def _needs(pod: PodRecord) -> dict[str, int]:
    """Return thousandths of what one more pod counts for (pkg/quota/v1/evaluator/core/pods.go)."""
    cpu, memory = pod.requests.cpu_milli, 1000 * pod.requests.mem_bytes
    return {
        "pods": 1000,
        "count/pods": 1000,
        "cpu": cpu,
        "requests.cpu": cpu,
        "memory": memory,
        "requests.memory": memory,
    }
