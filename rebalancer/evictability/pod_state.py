# SPDX-License-Identifier: Apache-2.0
"""Gates about the pod itself: it has ended, is tied to its node, or is one of ours."""

from __future__ import annotations

from typing import Final

from common.api.contract import PRODUCT, PRODUCT_LABEL
from common.cluster.records import UNBOUND, PodRecord
from rebalancer.evictability.context import Context
from rebalancer.refusals import Reason, Refusal

_TERMINATING: Final = Reason.TERMINATING.refusal()
_NOT_PLACED: Final = Reason.NOT_PLACED.refusal()
_MIRROR: Final = Reason.MIRROR_POD.refusal()
_DAEMON: Final = Reason.DAEMON_SET_POD.refusal()
_OWN: Final = Reason.OWN_POD.refusal(label=PRODUCT_LABEL)


def not_terminating(pod: PodRecord, _: Context) -> Refusal | None:
    return _TERMINATING if pod.deleted_s is not None else None


def not_finished(pod: PodRecord, _: Context) -> Refusal | None:
    return Reason.FINISHED.refusal(phase=pod.phase) if pod.finished else None


def bound_to_a_node(pod: PodRecord, _: Context) -> Refusal | None:
    return _NOT_PLACED if pod.node == UNBOUND else None


def not_a_mirror_pod(pod: PodRecord, _: Context) -> Refusal | None:
    """A static pod appears in the API as a mirror pod that the Node owns.

    The kubelet restarts it from its manifest file whatever happens to the mirror
    (pkg/kubelet/pod/mirror_client.go).
    """
    by_node = pod.owner is not None and pod.owner.kind == "Node"
    return _MIRROR if by_node or pod.mirror else None


def not_a_daemon_set_pod(pod: PodRecord, _: Context) -> Refusal | None:
    return _DAEMON if pod.owner is not None and pod.owner.kind == "DaemonSet" else None


def not_our_own(pod: PodRecord, _: Context) -> Refusal | None:
    return _OWN if pod.labels.get(PRODUCT_LABEL) == PRODUCT else None
