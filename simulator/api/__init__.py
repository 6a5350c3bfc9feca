"""The simulator's API server: Kubernetes' API in memory, on a real port and in-process.

Over HTTP it behaves as kube-apiserver v1.36 does wherever our programs, our tests and
kubectl look; `tests/conformance` says where that is, and holds both servers to it. What it
cannot do it refuses with 501 or 415.

In-process, everything else of the simulator (scheduler, controllers, kubelets) works on the
same `Store`, without HTTP:

    store = Store(clock=clock, rng=random.Random(seed))
    pod = store.create(PODS, build.pod("web", namespace="default"))
    store.bind("web", "default", "node-1", uid=pod["metadata"]["uid"])
    store.modify(PODS, "web", running, namespace="default", status=True)
    store.delete(PODS, "web", namespace="default", options=DeleteOptions(grace_s=0))
    stop = store.subscribe(PODS, on_change, replay=True)

The rules of working on it:

- Everything is synchronous and belongs to one event loop. Between two awaits nobody else
  writes, so read-modify-write (`modify`) cannot conflict; `update` compares versions as PUT
  does.
- Objects are values. What `get`, `list` and `subscribe` hand out is stored as it is: never
  change it, build a new one (`{**pod, "status": {**pod["status"], "phase": "Running"}}`).
- A subscriber is called within the write, in the order of versions. It should note a key
  and return; `WorkQueue` takes the keys and runs the work between writes.
- Refusals are exceptions of `simulator.api.errors`, with the codes and words of the real
  server: NotFound, AlreadyExists, Conflict, Invalid, TooManyRequests, …
- uids and generated names come from `rng`, times from `clock`: the same seed makes the same
  cluster.

What the server does by itself, as the real one does: it fills in defaults, priorities and
tolerations, and taints every new node `node.kubernetes.io/not-ready` (a node controller has
to take that away again). What belongs to kube-controller-manager but comes with the API:
`GarbageCollector` and `NamespaceController`; each has `run()`.
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
from simulator.api.kubeconfig import write_kubeconfig
from simulator.api.metadata import timestamp
from simulator.api.metrics_api import MetricsProvider
from simulator.api.namespaces import NamespaceController
from simulator.api.server import ApiServer
from simulator.api.storage import Change, EventType, Json
from simulator.api.store import Store
from simulator.api.strategies.events import CORE_EVENTS
from simulator.api.strategies.pods import condition, is_ready, with_condition
from simulator.api.workqueue import WorkQueue

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
    "WorkQueue",
    "condition",
    "is_ready",
    "timestamp",
    "with_condition",
    "write_kubeconfig",
]
