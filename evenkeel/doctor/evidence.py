# SPDX-License-Identifier: Apache-2.0
"""What the doctor looks at: gathered once, judged by pure checks.

Whatever the caller may not read is missing here, and the check that needs it says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from common.api.contract import COMPONENT_LABEL, PRODUCT, PRODUCT_LABEL
from common.cluster.storage import LeaseRecord
from common.config import (
    ConfigError,
    ExtenderConfiguration,
    RebalancerConfiguration,
    parse_config,
)
from common.kube.api import KubeApi
from common.kube.errors import Forbidden, KubeError, NotFound
from common.kube.resources import (
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    LEASES,
    MIGRATIONS,
    PDBS,
    PODS,
    Resource,
)
from common.kube.timestamps import parse_time
from evenkeel.session import CONFIG_KEY, CONFIG_MAP, Session
from rebalancer.inspection import Inspection

Json = dict[str, Any]  # Any: an API object as it is

CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    False,
)
EXTENDER_MAP: Final = "evenkeel-extender"
EXTENDER_KEY: Final = "extender.yaml"

HELD_S: Final = 120.0
"""A Lease that was not renewed for this long has no holder any more."""

NEEDED: Final = (
    ("create", PODS, "eviction"),
    ("get", PODS, ""),
    ("patch", PODS, ""),
    ("create", MIGRATIONS, ""),
    ("patch", MIGRATIONS, "status"),
    ("create", PDBS, ""),
)
"""What the rebalancer's account has to be allowed, cluster-wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that checks judge."""

    asked: Inspection
    namespace: str
    pause_words: str = ""
    version: tuple[int, int] | None = None
    crd: Json | None = None
    why_no_crd: str = ""
    programs: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    """Deployments and DaemonSets of Evenkeel, by component."""
    leases: Sequence[LeaseRecord] = ()
    """Leases of Evenkeel, of all namespaces that can be read."""
    config_problems: tuple[str, ...] = ()
    extender_problems: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """What the rebalancer's account is not allowed."""
    policies: int | None = None
    leaders: tuple[str, ...] = ()
    """The namespaces in which a rebalancer leads, as far as the caller may read Leases."""
    trouble: str = ""

    @property
    def config(self) -> RebalancerConfiguration:
        return self.asked.config

    @property
    def now_s(self) -> float:
        return self.asked.now_s


class _List(msgspec.Struct):
    items: list[Json] = []


async def gather(session: Session) -> Evidence:
    """Read all that checks judge, at once."""
    client, namespace = session.client, session.installation.namespace
    asked = await session.inspect()
    crd, version, programs = await asyncio.gather(_crd(client), _version(client), _programs(client))
    config_problems, extender_problems, refused = await asyncio.gather(
        _problems(client, namespace, CONFIG_MAP, CONFIG_KEY, RebalancerConfiguration),
        _problems(client, namespace, EXTENDER_MAP, EXTENDER_KEY, ExtenderConfiguration),
        _refused(client, namespace),
    )
    policies, leaders = await asyncio.gather(_policies(client), _leaders(client, asked.now_s))
    pause = session.installation.pause
    held = pause is not None and pause.holds(asked.now_s)
    return Evidence(
        asked=asked,
        namespace=namespace,
        pause_words=pause.words if pause is not None and held else "",
        version=version,
        crd=crd[0],
        why_no_crd=crd[1],
        programs=programs,
        leases=tuple(asked.snapshot.leases.values()),
        config_problems=config_problems,
        extender_problems=extender_problems,
        refused=refused,
        policies=policies,
        leaders=leaders,
        trouble=session.trouble,
    )


async def _crd(client: KubeApi) -> tuple[Json | None, str]:
    try:
        body = await client.get(CRDS.path(name="migrations.evenkeel.io"))
        return msgspec.json.decode(body), ""
    except NotFound:
        return None, ""
    except (KubeError, msgspec.DecodeError) as error:
        return None, str(error)


class _Version(msgspec.Struct):
    major: str = ""
    minor: str = ""


async def _version(client: KubeApi) -> tuple[int, int] | None:
    try:
        found = msgspec.json.decode(await client.get("/version"), type=_Version)
        return int(found.major), int(found.minor.rstrip("+"))
    except (KubeError, msgspec.DecodeError, ValueError):
        return None


async def _programs(client: KubeApi) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for resource in (DEPLOYMENTS, DAEMONSETS):
        try:
            params = {"labelSelector": f"{PRODUCT_LABEL}={PRODUCT}"}
            listed = msgspec.json.decode(
                await client.get(resource.path(), params=params), type=_List
            )
        except (KubeError, msgspec.DecodeError):
            continue
        for item in listed.items:
            component = (item["metadata"].get("labels") or {}).get(COMPONENT_LABEL, "")
            found.setdefault(component, []).append({**item, "kind": resource.kind})
    return found


async def _problems(
    client: KubeApi,
    namespace: str,
    name: str,
    key: str,
    kind: type[RebalancerConfiguration] | type[ExtenderConfiguration],
) -> tuple[str, ...]:
    """Return what is wrong with a configuration in the cluster, as far as it can be read."""
    text = await _text(client, namespace, name, key)
    if text is None:
        return ()
    try:
        parse_config(text, kind, kind.__name__, _ignored)
    except ConfigError as error:
        return error.problems
    return ()


async def _text(client: KubeApi, namespace: str, name: str, key: str) -> str | None:
    try:
        path = CONFIGMAPS.path(namespace=namespace, name=name)
        found: Json = msgspec.json.decode(await client.get(path))
    except (KubeError, msgspec.DecodeError):
        return None
    data = found.get("data") or {}
    return data.get(key) if isinstance(data.get(key), str) else None


def _ignored(_: str) -> None:
    """Deprecations are reported when the configuration is used."""


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _Access(msgspec.Struct):
    status: _AccessStatus


async def _refused(client: KubeApi, namespace: str) -> tuple[str, ...]:
    """Return what the rebalancer's account may not do, as far as the caller may ask."""
    user = f"system:serviceaccount:{namespace}:evenkeel-rebalancer"

    async def ask(verb: str, resource: Resource, subresource: str) -> str | None:
        wanted = {
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": wanted},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await client.request("POST", path, body=body)
        if msgspec.json.decode(answer, type=_Access).status.allowed:
            return None
        return f"{verb} {resource.plural}{'/' + subresource if subresource else ''}"

    try:
        found = await asyncio.gather(*(ask(*each) for each in NEEDED))
    except (KubeError, msgspec.DecodeError):
        return ()
    return tuple(each for each in found if each is not None)


async def _leaders(client: KubeApi, now_s: float) -> tuple[str, ...]:
    try:
        params = {"fieldSelector": f"metadata.name={CONFIG_MAP}"}
        listed = msgspec.json.decode(await client.get(LEASES.path(), params=params), type=_List)
    except (KubeError, msgspec.DecodeError):
        return ()
    return tuple(
        sorted(
            item["metadata"].get("namespace", "")
            for item in listed.items
            if item["metadata"].get("name") == CONFIG_MAP
            and _is_held(item.get("spec") or {}, now_s)
        )
    )


def _is_held(spec: Json, now_s: float) -> bool:
    try:
        fresh = abs(now_s - parse_time(str(spec.get("renewTime") or ""))) < HELD_S
    except ValueError:
        return False
    return fresh and bool(spec.get("holderIdentity"))


async def _policies(client: KubeApi) -> int | None:
    try:
        params = {"labelSelector": f"{PRODUCT_LABEL}={PRODUCT}"}
        listed = msgspec.json.decode(await client.get(POLICIES.path(), params=params), type=_List)
    except (Forbidden, NotFound):
        return None
    except (KubeError, msgspec.DecodeError):
        return None
    return len(listed.items)
