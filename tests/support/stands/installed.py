# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster in which Evenkeel seems to run: its objects, without its programs.

What a command reads of an installation is written down here as the programs would: the CRD, the
ConfigMaps, a Lease of the leader and one of an extender that default-scheduler calls.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from common import __version__
from common.api.contract import (
    COMPONENT_LABEL,
    EXTENDER_LEASE_PREFIX,
    FILTER_CALLS,
    LOAD_SETTINGS,
    PRODUCT,
    PRODUCT_LABEL,
    SEEN_MIGRATIONS,
)
from common.clock import SYSTEM
from common.config import RebalancerConfiguration, load_settings_hash, parse_config
from common.kube.resources import CONFIGMAPS, DEPLOYMENTS, LEASES, NAMESPACES
from common.kube.timestamps import micro_time
from simulator import build
from simulator.api import DEFINITIONS, Json
from simulator.cluster import SimulatedCluster
from tests.support.worlds.migrations import definition

NAMESPACE = "evenkeel"
LEADER = "evenkeel-rebalancer"
EXTENDER = f"{EXTENDER_LEASE_PREFIX}one"
SETTINGS: Json = {"mode": "act", "minPodAge": "0s", "minNodeAge": "0s", "observations": 1}


def config_text(**settings: Any) -> str:
    head = {"apiVersion": "evenkeel.io/v1alpha1", "kind": "RebalancerConfiguration"}
    return yaml.safe_dump(head | SETTINGS | settings)


def install(cluster: SimulatedCluster) -> None:
    """Write everything that an installation writes."""
    store = cluster.store
    store.create(DEFINITIONS, definition())
    store.create(NAMESPACES, build.namespace(NAMESPACE))
    configure(cluster)
    for component in ("rebalancer", "extender"):
        store.create(DEPLOYMENTS, program(component))
    lead(cluster)
    extend(cluster)


def program(component: str, tag: str = __version__) -> Json:
    labels = {PRODUCT_LABEL: PRODUCT, COMPONENT_LABEL: component}
    made = build.deployment(f"evenkeel-{component}", 1, namespace=NAMESPACE, labels=labels)
    made["metadata"]["labels"] = labels
    container = made["spec"]["template"]["spec"]["containers"][0]
    container |= {"name": component, "image": f"evenkeel:{tag}"}
    return made


def configure(cluster: SimulatedCluster, text: str | None = None) -> None:
    """Write the configuration of the rebalancer."""
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": LEADER, "namespace": NAMESPACE},
        "data": {"rebalancer.yaml": config_text() if text is None else text},
    }
    _put(cluster, CONFIGMAPS, made)


def lead(cluster: SimulatedCluster, *, namespace: str = NAMESPACE, ago_s: float = 0.0) -> None:
    """Write the Lease of the leader."""
    _put(cluster, LEASES, _lease(LEADER, namespace, "leader-1", ago_s, {}))


def extend(
    cluster: SimulatedCluster,
    *,
    ago_s: float = 0.0,
    share: float = 1.0,
    caller: str = "default-scheduler",
    settings: str = "",
) -> None:
    """Write the Lease of an extender."""
    now_s = SYSTEM.now()
    known = parse_config(config_text(), RebalancerConfiguration, "")
    calls = {caller: {"last": micro_time(now_s), "share": share}} if caller else {}
    annotations = {
        SEEN_MIGRATIONS: "1000000",
        FILTER_CALLS: json.dumps(calls),
        LOAD_SETTINGS: settings or load_settings_hash(known),
    }
    _put(cluster, LEASES, _lease(EXTENDER, NAMESPACE, "one", ago_s, annotations))


def _lease(
    name: str, namespace: str, holder: str, ago_s: float, annotations: dict[str, str]
) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            # Far enough in the future that it stays fresh while a slow test runs.
            "renewTime": micro_time(SYSTEM.now() + 20.0 - ago_s),
        },
    }


def _put(cluster: SimulatedCluster, resource: Any, made: Json) -> None:
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    known = [o["metadata"]["name"] for o in cluster.store.list(resource, namespace=namespace)]
    if name in known:
        cluster.store.delete(resource, name, namespace=namespace)
    cluster.store.create(resource, made)
