# SPDX-License-Identifier: Apache-2.0
"""One look at a cluster with the caller's kubeconfig and permissions. Reads, never writes.

The command judges by the configuration of the installed rebalancer, which it reads from its
ConfigMap; before Evenkeel is installed, or where the caller may not read it, by the defaults,
and says so. Permissions are checked before anything is waited for, so that a missing one is
named within seconds. Usage that cannot be read makes nodes unknown; that is no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from common.cache.reader import (
    CACHED_KINDS,
    MIGRATION_KIND,
    POD_GROUP_KIND,
    CachedKind,
    lease_kind,
)
from common.cli import StartError
from common.clock import Clock, within
from common.cluster.migrations import MigrationRecord
from common.cluster.storage import PauseRecord
from common.config import ConfigError, RebalancerConfiguration, load_config, parse_config
from common.kube.api import KubeApi
from common.kube.client import KubeClient, connect
from common.kube.errors import Forbidden, KubeError, NotFound
from common.kube.identity import lease_namespace
from common.kube.resources import CONFIGMAPS, LEASES, Resource
from common.load import Belief
from common.metrics import Metrics
from common.observer import Observer
from evenkeel.errors import MissingPermission
from evenkeel.pause import PauseRead, read_pause
from evenkeel.progress import Progress
from rebalancer.inspection import Inspection, leader_words
from rebalancer.inspection.moment import NO_PLAN

CONFIG_MAP: Final = "evenkeel-rebalancer"
CONFIG_KEY: Final = "rebalancer.yaml"
QPS: Final = 200
"""A person waits for the answer, and asks once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which cluster, and what to judge it by: the flags of every command."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    config: str | None = None
    timeout_s: float = 30.0


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What is there of Evenkeel in the cluster."""

    namespace: str
    config: RebalancerConfiguration
    config_from: str
    """Where the configuration is from, in words."""
    crd: bool
    """The Migration CRD is installed, and Migrations can be read."""
    why_no_migrations: str = ""
    pause: PauseRecord | None = None
    why_pause_unknown: str = ""

    @property
    def guessed(self) -> str:
        """Words for an answer that rests on the defaults; else empty."""
        told = self.config_from.startswith("the defaults")
        return f" (judged by {self.config_from})" if told else ""


class Session:
    """A cluster that is being read."""

    def __init__(
        self, client: KubeClient, observer: Observer, installation: Installation, clock: Clock
    ) -> None:
        self.client: Final = client
        self.observer: Final = observer
        self.installation = installation
        self.clock: Final = clock
        self.trouble = ""
        """Why usage was not read; empty if it was."""

    @property
    def config(self) -> RebalancerConfiguration:
        return self.installation.config

    async def look(self) -> Belief:
        """Return the cluster as it is known now."""
        belief, pause = await self.observer.look(), self.installation.pause
        pauses = {} if pause is None else {pause.namespace: pause}
        return belief._replace(snapshot=msgspec.structs.replace(belief.snapshot, pauses=pauses))

    async def inspect(self, *, plan: bool = True) -> Inspection:
        """Return the cluster as it is known now, ready for questions.

        With `plan` its plan is made in a thread; otherwise there is an empty one.
        """
        belief, now_s = await self.look(), self.clock.now()
        if not plan:
            return Inspection(belief, self.config, now_s, plan=NO_PLAN)
        asked = Inspection(belief, self.config, now_s)
        await asyncio.to_thread(lambda: asked.plan)
        return asked

    def paused(self, read: PauseRead) -> None:
        """Take note of a pause that was read again."""
        self.installation = msgspec.structs.replace(
            self.installation, pause=read.pause, why_pause_unknown=read.why_unknown
        )

    def obstacles(self) -> Iterator[str]:
        """Yield what keeps any move from being carried out now."""
        there, now_s = self.installation, self.clock.now()
        if not there.crd:
            yield there.why_no_migrations
            return
        leases = self.observer.reader.state.snapshot().leases
        leader = leader_words(leases, f"{there.namespace}/{CONFIG_MAP}", now_s)
        if not leader.endswith(" leads"):
            yield f"{leader}, so nothing would carry it out"
        if there.pause is not None and there.pause.holds(now_s):
            yield f"moves are paused {there.pause.words}"
        elif self.config.paused:
            yield "moves are paused by the configuration"

    def known(self) -> Mapping[str, MigrationRecord]:
        """Return the Migrations that are known now."""
        return self.observer.reader.state.snapshot().migrations


@asynccontextmanager
async def connected(target: Target, *, clock: Clock) -> AsyncIterator[KubeClient]:
    """Log in to the cluster; a wrong address, certificate or token is reported at once."""
    async with connect(
        kubeconfig=target.kubeconfig, context=target.context, qps=QPS, burst=QPS, clock=clock
    ) as client:
        try:
            await client.get("/version", timeout_s=target.timeout_s)
        except NotFound:
            raise StartError(f"{client.server} does not answer as a Kubernetes API does") from None
        yield client


@asynccontextmanager
async def reading(
    target: Target, *, clock: Clock, progress: Progress, usage: bool = True
) -> AsyncIterator[Session]:
    """Read a cluster until the block ends; it is known when the block begins."""
    async with connected(target, clock=clock) as client:
        with progress.waiting("Reading the cluster …"):
            installation = await installed(client, target)
            kinds = await _kinds(client, installation)
        observer = Observer(
            client, installation.config, clock=clock, metrics=Metrics("command"), kinds=kinds
        )
        session = Session(client, observer, installation, clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(observer.run())
            await _wait(session, target, progress, usage=usage)
            try:
                yield session
            finally:
                task.cancel()


async def installed(client: KubeApi, target: Target) -> Installation:
    """Return what is there of Evenkeel."""
    namespace = await namespace_of(client, target)
    config, source = await _config(client, target, namespace)
    why, pause = await _why_no_migrations(client), await read_pause(client, namespace)
    return Installation(
        namespace=namespace,
        config=config,
        config_from=source,
        crd=not why,
        why_no_migrations=why,
        pause=pause.pause,
        why_pause_unknown=pause.why_unknown,
    )


async def namespace_of(client: KubeApi, target: Target) -> str:
    """Return where Evenkeel is: as the flag says, or where a rebalancer keeps its Lease."""
    found = lease_namespace(target.namespace, "")
    if found.said:
        return found.name
    try:
        params = {"fieldSelector": f"metadata.name={CONFIG_MAP}"}
        leases = msgspec.json.decode(await client.get(LEASES.path(), params=params), type=_List)
    except (KubeError, msgspec.DecodeError):
        return found.name
    names = sorted(
        item.metadata.namespace for item in leases.items if item.metadata.name == CONFIG_MAP
    )
    return names[0] if names and found.name not in names else found.name


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Item(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _List(msgspec.Struct):
    items: list[_Item] = []


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


async def _config(
    client: KubeApi, target: Target, namespace: str
) -> tuple[RebalancerConfiguration, str]:
    if target.config is not None:
        return load_config(target.config, RebalancerConfiguration), f"file {target.config}"
    name = f"ConfigMap {namespace}/{CONFIG_MAP}"
    try:
        path = CONFIGMAPS.path(namespace=namespace, name=CONFIG_MAP)
        found = msgspec.json.decode(await client.get(path), type=_ConfigMap).data or {}
    except NotFound:
        return RebalancerConfiguration(), f"the defaults: there is no {name}"
    except Forbidden:
        return RebalancerConfiguration(), f"the defaults: you may not get {name}"
    except msgspec.DecodeError:
        return RebalancerConfiguration(), f"the defaults: {name} is not valid"
    if CONFIG_KEY not in found:
        return RebalancerConfiguration(), f"the defaults: {name} has no key {CONFIG_KEY}"
    try:
        return parse_config(found[CONFIG_KEY], RebalancerConfiguration, name), name
    except ConfigError as error:
        # A running rebalancer keeps what it had; what that was is not known here.
        return RebalancerConfiguration(), f"the defaults, because {error.problems[0]}"


async def _why_no_migrations(client: KubeApi) -> str:
    try:
        await client.get(MIGRATION_KIND.resource.path(), params={"limit": 1})
    except NotFound:
        return "the Migration CRD is not installed"
    except Forbidden:
        return "you may not list migrations.evenkeel.io"
    return ""


async def _kinds(client: KubeApi, installation: Installation) -> tuple[CachedKind, ...]:
    """Return what to read; raise `MissingPermission` for what cannot be done without."""
    forbidden = await forbidden_lists(client, [kind.resource for kind in CACHED_KINDS])
    if forbidden:
        raise MissingPermission(f"list {each}" for each in forbidden)
    namespace = installation.namespace
    leases = await forbidden_lists(client, [LEASES], namespace)
    read = (*CACHED_KINDS, POD_GROUP_KIND)
    kinds = read if leases else (*read, lease_kind(namespace))
    return (*kinds, MIGRATION_KIND) if installation.crd else kinds


async def forbidden_lists(
    client: KubeApi, resources: Sequence[Resource], namespace: str | None = None
) -> list[str]:
    """Return the resources that the caller may not list."""

    async def ask(resource: Resource) -> str | None:
        try:
            await client.get(resource.path(namespace=namespace), params={"limit": 1})
        except Forbidden:
            group = f".{resource.group}" if resource.group else ""
            where = f" in namespace {namespace}" if namespace else ""
            return f"{resource.plural}{group}{where}"
        except NotFound:
            return None
        return None

    found = await asyncio.gather(*map(ask, resources))
    return [each for each in found if each is not None]


async def _wait(session: Session, target: Target, progress: Progress, *, usage: bool) -> None:
    observer, clock = session.observer, session.clock
    with progress.waiting("Reading the cluster …"):
        try:
            await within(clock, target.timeout_s, observer.reader.wait_synced())
        except TimeoutError:
            why = observer.reader.why_not_synced()
            text = f"the cluster was not read within {target.timeout_s:g} s: {why}"
            raise StartError(text) from None
    if not usage:
        return
    with progress.waiting("Waiting for measured usage …"):
        try:
            await within(clock, target.timeout_s, observer.wait_sampled())
        except TimeoutError:
            session.trouble = observer.why_not_ready() or "usage was not read in time"


class _UserInfo(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def whoami(client: KubeApi) -> str:
    """Return the name that the cluster knows the caller by; empty if it does not say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    try:
        answer = await client.request("POST", path, body=body)
        return msgspec.json.decode(answer, type=_Review).status.user_info.username
    except (KubeError, msgspec.DecodeError):
        return ""


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _Access(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


async def may(
    client: KubeApi, verb: str, resource: Resource, *, namespace: str = "", subresource: str = ""
) -> bool:
    """Tell whether the caller may do something; where the server does not say, assume so."""
    wanted = {
        "verb": verb,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": subresource,
        "namespace": namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    try:
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await client.request("POST", path, body=body)
        return msgspec.json.decode(answer, type=_Access).status.allowed
    except (KubeError, msgspec.DecodeError):
        return True
