# SPDX-License-Identifier: Apache-2.0
"""The simulator's API server: Kubernetes' API in memory, on a real port and in-process.

Over HTTP it behaves like kube-apiserver v1.36 in everything that our programs, our tests and
kubectl use; `tests/conformance` runs the same cases against both servers. Requests that it does
not support are rejected with 501 or 415.

In-process, everything else of the simulator (scheduler, controllers, kubelets) works on the
same `Store`, without HTTP:

    store = Store(clock=clock, rng=random.Random(seed))
    pod = store.create(PODS, build.pod("web", namespace="default"))
    store.bind("web", "default", "node-1", uid=pod["metadata"]["uid"])
    store.modify(PODS, "web", running, namespace="default", status=True)
    store.delete(PODS, "web", namespace="default", options=DeleteOptions(grace_s=0))
    stop = store.subscribe(PODS, on_change, replay=True)

The rules for using it:

- Everything is synchronous and runs on one event loop. Between two awaits there is no other
  writer, so read-modify-write (`modify`) cannot conflict; `update` compares versions as PUT
  does.
- Objects are values. What `get`, `list` and `subscribe` hand out is stored as it is: never
  change it, build a new one (`{**pod, "status": {**pod["status"], "phase": "Running"}}`).
- A subscriber is called within the write, in the order of versions. It should note a key
  and return; `SyncQueue` takes the keys and runs the work between writes.
- Rejections are exceptions of `simulator.api.errors`, with the codes and messages of the real
  server: NotFound, AlreadyExists, Conflict, Invalid, TooManyRequests, …
- uids and generated names come from `rng`, times from `clock`: the same seed makes the same
  cluster.

Like the real server, it fills in defaults, priorities and tolerations, and taints every new
node `node.kubernetes.io/not-ready` (a node controller has to remove the taint).
`GarbageCollector` and `NamespaceController` belong to kube-controller-manager but are part of
this package; each has `run()`.
"""

from simulator.api.catalog import (
    CONFIGMAPS,
    CONTROLLER_REVISIONS,
    DEFINITIONS,
    SERVICES,
    VOLUME_ATTACHMENTS,
)
from simulator.api.deletion import Deleted, DeleteOptions
from simulator.api.faults import Fault, Faults
from simulator.api.garbage import GarbageCollector
from simulator.api.kinds.events import CORE_EVENTS
from simulator.api.kinds.pods import condition, is_ready, with_condition
from simulator.api.metadata import timestamp
from simulator.api.metrics_api import MetricsProvider
from simulator.api.namespaces import NamespaceController
from simulator.api.server import ApiServer
from simulator.api.storage import Change, EventType, Json
from simulator.api.store import Store
from simulator.api.sync_queue import SyncQueue

__all__ = [
    "CONFIGMAPS",
    "CONTROLLER_REVISIONS",
    "CORE_EVENTS",
    "DEFINITIONS",
    "SERVICES",
    "VOLUME_ATTACHMENTS",
    "ApiServer",
    "Change",
    "DeleteOptions",
    "Deleted",
    "EventType",
    "Fault",
    "Faults",
    "GarbageCollector",
    "Json",
    "MetricsProvider",
    "NamespaceController",
    "Store",
    "SyncQueue",
    "condition",
    "is_ready",
    "timestamp",
    "with_condition",
]
