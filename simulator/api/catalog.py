# SPDX-License-Identifier: Apache-2.0
"""The built-in kinds, as discovery shows them."""

from __future__ import annotations

from typing import Final

from common.kube import resources as kube
from common.kube.resources import Resource
from simulator.api.kind import Alias, Kind, Names, Strategy, Subresource, Subresources
from simulator.api.kinds.budgets import BudgetStrategy
from simulator.api.kinds.cluster import (
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PriorityClassStrategy,
    ServiceStrategy,
)
from simulator.api.kinds.definitions import DefinitionStrategy
from simulator.api.kinds.events import (
    CORE_EVENTS,
    CoreEventStrategy,
    NewEventStrategy,
    to_new,
    to_old,
)
from simulator.api.kinds.pods import PodStrategy
from simulator.api.kinds.volumes import (
    ClaimStrategy,
    ReturnedData,
    StorageClassStrategy,
    VolumeStrategy,
)
from simulator.api.kinds.workloads import (
    DaemonSetStrategy,
    DeploymentStrategy,
    JobStrategy,
    ReplicaSetStrategy,
    ReplicationControllerStrategy,
    StatefulSetStrategy,
)

CONFIGMAPS: Final = kube.CONFIGMAPS
SERVICES: Final = Resource("", "v1", "services", "Service", True)
CONTROLLER_REVISIONS: Final = Resource(
    "apps", "v1", "controllerrevisions", "ControllerRevision", True
)
VOLUME_ATTACHMENTS: Final = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False
)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)

_CHANGE: Final = ("get", "patch", "update")
_SCALE: Final = Subresource("scale", "Scale", _CHANGE, "autoscaling", "v1")
_POD_ONLY: Final = (
    Subresource("binding", "Binding", ("create",)),
    Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
)
_POD_MISSING: Final = frozenset(
    {"attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize"}
)
_NAMESPACE_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


def _workload(
    resource: Resource, strategy: Strategy, short: str = "", *, scale: bool = True
) -> Kind:
    return Kind(
        resource=resource,
        strategy=strategy,
        names=Names(
            singular=resource.kind.lower(), short=(short,) if short else (), categories=("all",)
        ),
        subresources=Subresources(status=True, others=(_SCALE,) if scale else ()),
    )


def _data(resource: Resource, strategy: Strategy, *short: str, status: bool = False) -> Kind:
    return Kind(
        resource=resource,
        strategy=strategy,
        names=Names(singular=resource.kind.lower(), short=short),
        subresources=Subresources(status=status),
    )


def built_in() -> list[Kind]:
    """Return all kinds that exist without a CustomResourceDefinition."""
    return [
        _data(CONFIGMAPS, Strategy(), "cm"),
        _data(CORE_EVENTS, CoreEventStrategy(), "ev"),
        Kind(
            resource=kube.NAMESPACES,
            strategy=NamespaceStrategy(),
            names=Names(singular="namespace", short=("ns",)),
            verbs=_NAMESPACE_VERBS,
            subresources=Subresources(
                status=True, others=(Subresource("finalize", "Namespace", ("update",)),)
            ),
        ),
        Kind(
            resource=kube.NODES,
            strategy=NodeStrategy(),
            names=Names(singular="node", short=("no",)),
            subresources=Subresources(status=True, unsupported=frozenset({"proxy"})),
        ),
        _data(kube.PVCS, ClaimStrategy(), "pvc", status=True),
        _data(kube.PVS, VolumeStrategy(), "pv", status=True),
        _data(kube.RESOURCE_QUOTAS, Strategy(), "quota", status=True),
        Kind(
            resource=kube.PODS,
            strategy=PodStrategy(),
            names=Names(singular="pod", short=("po",), categories=("all",)),
            subresources=Subresources(status=True, others=_POD_ONLY, unsupported=_POD_MISSING),
        ),
        _workload(kube.REPLICATIONCONTROLLERS, ReplicationControllerStrategy(), "rc"),
        Kind(
            resource=SERVICES,
            strategy=ServiceStrategy(),
            names=Names(singular="service", short=("svc",), categories=("all",)),
            subresources=Subresources(status=True, unsupported=frozenset({"proxy"})),
        ),
        _data(CONTROLLER_REVISIONS, Strategy()),
        _workload(kube.DAEMONSETS, DaemonSetStrategy(), "ds", scale=False),
        _workload(kube.DEPLOYMENTS, DeploymentStrategy(), "deploy"),
        _workload(kube.REPLICASETS, ReplicaSetStrategy(), "rs"),
        _workload(kube.STATEFULSETS, StatefulSetStrategy(), "sts"),
        _workload(kube.JOBS, JobStrategy(), scale=False),
        Kind(
            resource=kube.EVENTS,
            strategy=NewEventStrategy(),
            names=Names(singular="event", short=("ev",)),
            alias=Alias(CORE_EVENTS, from_stored=to_new, to_stored=to_old),
        ),
        _data(kube.PDBS, BudgetStrategy(), "pdb", status=True),
        _data(kube.AUTOSCALERS, Strategy(), "hpa", status=True),
        _data(kube.LEASES, LeaseStrategy()),
        _data(kube.PRIORITYCLASSES, PriorityClassStrategy(), "pc"),
        _data(kube.CSINODES, ReturnedData()),
        _data(kube.STORAGECLASSES, StorageClassStrategy(), "sc"),
        _data(VOLUME_ATTACHMENTS, ReturnedData(), status=True),
        Kind(
            resource=DEFINITIONS,
            strategy=DefinitionStrategy(),
            names=Names(
                singular="customresourcedefinition",
                short=("crd", "crds"),
                categories=("api-extensions",),
            ),
            subresources=Subresources(status=True),
        ),
    ]
