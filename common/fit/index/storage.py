# SPDX-License-Identifier: Apache-2.0
"""Claims, volumes and classes as one snapshot has them, and what they come to.

A claim that is not bound yet counts as the volume that its class would make. Volumes of
the drivers that have left Kubernetes count as those of the CSI driver that took over, on
nodes with a CSINode (pkg/scheduler/framework/plugins/nodevolumelimits/csi.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, NamedTuple

from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName
from common.cluster.shapes import Disk
from common.cluster.storage import (
    ClaimRecord,
    CsiNodeRecord,
    StorageClassRecord,
    VolumeRecord,
)

# k8s.io/csi-translation-lib/plugins, those of isCSIMigrationOn in nodevolumelimits/utils.go.
SUCCESSORS: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
_UNCOUNTED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
_GCE_HANDLE: Final = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{}"


class Attachment(NamedTuple):
    """A volume that a CSI driver attaches to a node."""

    driver: str
    handle: str


class Storage:
    """What a snapshot says of storage."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._claims = snapshot.claims
        self._volumes = snapshot.volumes
        self._classes = snapshot.storage_classes
        self._csi_nodes = snapshot.csi_nodes

    def is_of(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot says the same."""
        return (
            self._claims is snapshot.claims
            and self._volumes is snapshot.volumes
            and self._classes is snapshot.storage_classes
            and self._csi_nodes is snapshot.csi_nodes
        )

    def claim(self, key: str) -> ClaimRecord | None:
        return self._claims.get(key)

    def volume(self, name: str) -> VolumeRecord | None:
        return self._volumes.get(name)

    def class_of(self, claim: ClaimRecord) -> StorageClassRecord | None:
        return self._classes.get(claim.storage_class) if claim.storage_class else None

    def csi_node(self, name: NodeName) -> CsiNodeRecord | None:
        return self._csi_nodes.get(name)

    def of_class(self, name: str) -> list[VolumeRecord]:
        """Return the volumes of a class, the smallest first."""
        return self._by_class.get(name, [])

    def limits(self, name: NodeName) -> dict[str, int]:
        """Return how many volumes of each driver a node can have; unlimited ones are left out."""
        node = self.csi_node(name)
        drivers = node.drivers if node is not None else ()
        return {d.name: d.max_volumes for d in drivers if d.max_volumes is not None}

    def limits_of(self, driver: str) -> Mapping[NodeName, int]:
        """Return the nodes that limit a driver's volumes, with their limits."""
        return self._by_driver.get(driver, {})

    def attachment(self, claim: ClaimRecord, *, migrated: bool) -> Attachment | None:
        """Return what attaching a claim's volume takes; `migrated` means a CSINode exists."""
        volume = self.volume(claim.volume) if claim.volume else None
        if volume is None:
            return self._to_be_made(claim, migrated=migrated)
        if volume.driver:
            return Attachment(volume.driver, volume.handle) if volume.handle else None
        successor = SUCCESSORS.get(volume.in_tree)
        return Attachment(successor, volume.name) if successor and migrated else None

    def _to_be_made(self, claim: ClaimRecord, *, migrated: bool) -> Attachment | None:
        made_by = self.class_of(claim)
        provisioner = made_by.provisioner if made_by is not None else ""
        if provisioner in SUCCESSORS or provisioner in _UNCOUNTED:
            provisioner = SUCCESSORS.get(provisioner, "") if migrated else ""
        return Attachment(provisioner, f"?{claim.key}") if provisioner else None

    @cached_property
    def _by_driver(self) -> dict[str, dict[NodeName, int]]:
        found: dict[str, dict[NodeName, int]] = {}
        for name in map(NodeName, self._csi_nodes):
            for driver, limit in self.limits(name).items():
                found.setdefault(driver, {})[name] = limit
        return found

    @cached_property
    def _by_class(self) -> dict[str, list[VolumeRecord]]:
        found: dict[str, list[VolumeRecord]] = {}
        for volume in sorted(self._volumes.values(), key=lambda v: (v.capacity_milli, v.name)):
            found.setdefault(volume.storage_class, []).append(volume)
        return found


def inline(disk: Disk) -> Attachment | None:
    """Return what attaching a disk takes that a pod names itself."""
    if disk.kind == "aws":
        return Attachment(SUCCESSORS["kubernetes.io/aws-ebs"], disk.ids[0].rpartition("/")[2])
    if disk.kind == "gce":
        return Attachment(SUCCESSORS["kubernetes.io/gce-pd"], _GCE_HANDLE.format(disk.ids[0]))
    return None
