# SPDX-License-Identifier: Apache-2.0
"""What the cache keeps of volumes, and of the small kinds: namespaces, priorities, leases."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from common.api.contract import PAUSED_BECAUSE, PAUSED_BY, PAUSED_UNTIL
from common.api.objects import (
    ConfigMap,
    Lease,
    Namespace,
    ObjectMeta,
    PriorityClass,
)
from common.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeSpec,
)
from common.cluster import quantities as quantity
from common.cluster.interning import EMPTY, Interner
from common.cluster.records import Owner, controller_of, kept_annotations, seconds
from common.cluster.selectors import NodeSelector, Selector, from_label_selector

FILESYSTEM: Final = "Filesystem"

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of the small records."""


class ClaimRecord(Record, frozen=True, kw_only=True):
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    uid: str
    volume: str = ""
    bound: bool = False
    """The volume is named and the binding is complete."""
    phase: str = ""
    storage_class: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = FILESYSTEM
    attributes_class: str = ""
    selector: Selector | None = None
    request_milli: int = 0
    annotations: Mapping[str, str] = EMPTY
    owner: Owner | None = None
    deleted_s: float | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class VolumeRecord(Record, frozen=True, kw_only=True):
    """A PersistentVolume."""

    name: str
    uid: str
    labels: Mapping[str, str] = EMPTY
    claim: str = ""
    """`namespace/name` of the claim that it is bound to or reserved for."""
    claim_uid: str = ""
    phase: str = ""
    storage_class: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = FILESYSTEM
    attributes_class: str = ""
    capacity_milli: int = 0
    driver: str = ""
    handle: str = ""
    in_tree: str = ""
    """The plugin of a volume that an in-tree driver made, before CSI."""
    local: bool = False
    nodes: NodeSelector | None = None
    deleted_s: float | None = None


class StorageClassRecord(Record, frozen=True, kw_only=True):
    name: str
    provisioner: str
    waits_for_consumer: bool
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()
    """Terms, any of which must match; each is (label, allowed values) pairs that all must."""


class DriverRecord(Record, frozen=True, kw_only=True):
    """A CSI driver on a node."""

    name: str
    node_id: str
    topology_keys: tuple[str, ...] = ()
    max_volumes: int | None = None


class CsiNodeRecord(Record, frozen=True, kw_only=True):
    name: str
    drivers: tuple[DriverRecord, ...] = ()


class PriorityClassRecord(Record, frozen=True, kw_only=True):
    name: str
    value: int
    is_default: bool = False


class NamespaceRecord(Record, frozen=True, kw_only=True):
    name: str
    labels: Mapping[str, str] = EMPTY
    deleted_s: float | None = None


class LeaseRecord(Record, frozen=True, kw_only=True):
    namespace: str
    name: str
    holder: str = ""
    duration_s: int = 0
    created_s: float | None = None
    renewed_s: float | None = None
    annotations: Mapping[str, str] = EMPTY

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PauseRecord(Record, frozen=True, kw_only=True):
    """Nothing is moved while it exists and its time is not over."""

    namespace: str
    by: str
    why: str
    since_s: float | None = None
    until_s: float | None = None
    """None: until it is removed."""

    def holds(self, now_s: float) -> bool:
        """Tell whether moves are stopped at a time."""
        return self.until_s is None or now_s < self.until_s

    @property
    def words(self) -> str:
        """Who paused, until when and why: completes "moves are paused …"."""
        until = f" until {_written(self.until_s)}" if self.until_s is not None else ""
        return f"by {self.by or 'someone'}{until}" + (f": {self.why}" if self.why else "")


def claim_record(wire: PersistentVolumeClaim, shared: Interner) -> ClaimRecord:
    meta, spec = wire.metadata, wire.spec
    return ClaimRecord(
        namespace=shared.value(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        volume=spec.volume_name,
        bound=bool(spec.volume_name) and _BIND_COMPLETED in (meta.annotations or ()),
        phase=shared.value(wire.status.phase),
        storage_class=_beta_class(meta) or spec.storage_class_name,
        access_modes=shared.value(spec.access_modes or ()),
        volume_mode=spec.volume_mode or FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name or "",
        selector=from_label_selector(spec.selector) if spec.selector is not None else None,
        request_milli=_storage_milli(spec.resources.requests if spec.resources else None),
        owner=controller_of(meta, shared),
        annotations=kept_annotations(meta, shared),
        deleted_s=seconds(meta.deletion_timestamp),
    )


def volume_record(wire: PersistentVolume, shared: Interner) -> VolumeRecord:
    meta, spec = wire.metadata, wire.spec
    affinity = spec.node_affinity.required if spec.node_affinity is not None else None
    return VolumeRecord(
        name=meta.name,
        uid=meta.uid,
        labels=shared.labels(meta.labels),
        claim=f"{spec.claim_ref.namespace}/{spec.claim_ref.name}" if spec.claim_ref else "",
        claim_uid=spec.claim_ref.uid if spec.claim_ref else "",
        phase=shared.value(wire.status.phase),
        storage_class=shared.value(_beta_class(meta) or spec.storage_class_name),
        access_modes=shared.value(spec.access_modes or ()),
        volume_mode=spec.volume_mode or FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name or "",
        capacity_milli=_storage_milli(spec.capacity),
        driver=spec.csi.driver if spec.csi else "",
        handle=spec.csi.volume_handle if spec.csi else "",
        in_tree=_in_tree(spec),
        local=spec.local is not None or spec.host_path is not None,
        nodes=shared.value(NodeSelector.from_wire(affinity)) if affinity is not None else None,
        deleted_s=seconds(meta.deletion_timestamp),
    )


def _beta_class(meta: ObjectMeta) -> str:
    return (meta.annotations or {}).get(_BETA_CLASS, "")


def _storage_milli(amounts: Mapping[str, str | float] | None) -> int:
    text = (amounts or {}).get("storage")
    return quantity.exact_milli(text) if text is not None else 0


def _in_tree(spec: VolumeSpec) -> str:
    # Names: k8s.io/csi-translation-lib/plugins.
    sources = {
        "kubernetes.io/aws-ebs": spec.aws_elastic_block_store,
        "kubernetes.io/gce-pd": spec.gce_persistent_disk,
        "kubernetes.io/azure-disk": spec.azure_disk,
        "kubernetes.io/azure-file": spec.azure_file,
        "kubernetes.io/cinder": spec.cinder,
        "kubernetes.io/portworx-volume": spec.portworx_volume,
        "kubernetes.io/vsphere-volume": spec.vsphere_volume,
    }
    return next((name for name, source in sources.items() if source is not None), "")


def storage_class_record(wire: StorageClass, shared: Interner) -> StorageClassRecord:
    return StorageClassRecord(
        name=wire.metadata.name,
        provisioner=wire.provisioner,
        waits_for_consumer=wire.volume_binding_mode == "WaitForFirstConsumer",
        topologies=tuple(
            tuple((e.key, e.values) for e in term.match_label_expressions or ())
            for term in wire.allowed_topologies or ()
        ),
    )


def csi_node_record(wire: CSINode, shared: Interner) -> CsiNodeRecord:
    return CsiNodeRecord(
        name=wire.metadata.name,
        drivers=tuple(
            DriverRecord(
                name=driver.name,
                node_id=driver.node_id,
                topology_keys=shared.value(driver.topology_keys or ()),
                max_volumes=driver.allocatable.count if driver.allocatable else None,
            )
            for driver in wire.spec.drivers or ()
        ),
    )


def priority_class_record(wire: PriorityClass, shared: Interner) -> PriorityClassRecord:
    return PriorityClassRecord(
        name=wire.metadata.name, value=wire.value, is_default=wire.global_default
    )


def namespace_record(wire: Namespace, shared: Interner) -> NamespaceRecord:
    meta = wire.metadata
    return NamespaceRecord(
        name=meta.name,
        labels=shared.labels(meta.labels),
        deleted_s=seconds(meta.deletion_timestamp),
    )


def pause_record(wire: ConfigMap, shared: Interner) -> PauseRecord:
    """Return who paused, why and until when; what cannot be read pauses without an end."""
    meta, data = wire.metadata, wire.data or {}
    until_s, why = None, data.get(PAUSED_BECAUSE, "")
    try:
        until_s = _read(data[PAUSED_UNTIL]) if data.get(PAUSED_UNTIL) else None
    except (ValueError, OverflowError):
        why = f"{why} (the time in {PAUSED_UNTIL} cannot be read)".strip()
    return PauseRecord(
        namespace=meta.namespace,
        by=data.get(PAUSED_BY, ""),
        why=why,
        since_s=seconds(meta.creation_timestamp),
        until_s=until_s,
    )


def _read(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"no time zone: {text!r}")
    return moment.timestamp()


def _written(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def lease_record(wire: Lease, shared: Interner) -> LeaseRecord:
    meta, spec = wire.metadata, wire.spec
    return LeaseRecord(
        namespace=shared.value(meta.namespace),
        name=meta.name,
        holder=spec.holder_identity or "",
        duration_s=spec.lease_duration_seconds or 0,
        created_s=seconds(meta.creation_timestamp),
        renewed_s=seconds(spec.renew_time),
        annotations=kept_annotations(meta, shared),
    )
