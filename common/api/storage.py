# SPDX-License-Identifier: Apache-2.0
"""The shape of volumes, claims and storage classes on the wire; see `objects`."""

from __future__ import annotations

from typing import Any

import msgspec

from common.api.objects import Object, Quantities, ResourceRequirements, Wire
from common.api.selectors import LabelSelector, WireNodeSelector


class ClaimSpec(Wire):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements | None = None


class ClaimStatus(Wire):
    phase: str = ""


class PersistentVolumeClaim(Object):
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class ClaimReference(Wire):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiSource(Wire):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Wire):
    required: WireNodeSelector | None = None


class VolumeSpec(Wire):
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] | None = None
    capacity: Quantities | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    csi: CsiSource | None = None
    local: dict[str, Any] | None = None  # Any: only whether it is there matters
    host_path: dict[str, Any] | None = None  # Any: only whether it is there matters
    node_affinity: VolumeNodeAffinity | None = None
    # Any: of volumes whose drivers have left Kubernetes, only whether they are there matters
    aws_elastic_block_store: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None


class VolumeStatus(Wire):
    phase: str = ""


class PersistentVolume(Object):
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)


class TopologyLabelRequirement(Wire):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire):
    match_label_expressions: tuple[TopologyLabelRequirement, ...] | None = None


class StorageClass(Object):
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class VolumeResources(Wire):
    count: int | None = None


class CsiDriver(Wire):
    name: str = ""
    node_id: str = msgspec.field(name="nodeID", default="")
    topology_keys: tuple[str, ...] | None = None
    allocatable: VolumeResources | None = None


class CsiNodeSpec(Wire):
    drivers: list[CsiDriver] | None = None


class CSINode(Object):
    spec: CsiNodeSpec = msgspec.field(default_factory=CsiNodeSpec)
