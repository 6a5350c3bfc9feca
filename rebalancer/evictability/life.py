"""Gates about what a pod is, whoever runs it: ended, tied to its node, or our own."""

from __future__ import annotations

from typing import Final

from common.cluster.records import UNBOUND, PodRecord
from common.contract import PRODUCT, PRODUCT_LABEL
from rebalancer.evictability.context import Context
from rebalancer.reasons import Refusal

_TERMINATING: Final = Refusal("Terminating", "it is being deleted already")
_NOT_PLACED: Final = Refusal("NotPlaced", "it is on no node yet", for_good=False)
_MIRROR: Final = Refusal("MirrorPod", "the kubelet of its node runs it from a file")
_DAEMON: Final = Refusal("DaemonSetPod", "its DaemonSet would recreate it on the same node")
_OWN: Final = Refusal("OwnPod", f"its label {PRODUCT_LABEL} says that it is one of Evenkeel's own")


def not_terminating(pod: PodRecord, _: Context) -> Refusal | None:
    return _TERMINATING if pod.deleted_s is not None else None


def not_finished(pod: PodRecord, _: Context) -> Refusal | None:
    return Refusal("Finished", f"it has ended ({pod.phase})") if pod.finished else None


def placed(pod: PodRecord, _: Context) -> Refusal | None:
    return _NOT_PLACED if pod.node == UNBOUND else None


def not_a_mirror_pod(pod: PodRecord, _: Context) -> Refusal | None:
    """A static pod shows in the API as its mirror, owned by the node."""
    by_node = pod.owner is not None and pod.owner.kind == "Node"
    return _MIRROR if by_node or pod.mirror else None


def not_a_daemon_set_pod(pod: PodRecord, _: Context) -> Refusal | None:
    return _DAEMON if pod.owner is not None and pod.owner.kind == "DaemonSet" else None


def not_our_own(pod: PodRecord, _: Context) -> Refusal | None:
    return _OWN if pod.labels.get(PRODUCT_LABEL) == PRODUCT else None
