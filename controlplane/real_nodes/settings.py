# SPDX-License-Identifier: Apache-2.0
"""The configuration files of a node: kubelet, containerd and its network plugin.

Pure functions. Paths inside a node are its own /var and /run; everything else is the host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.real_nodes.image import IMAGE

CPU_MILLI = 500
MEMORY_BYTES = 2 << 30
PODS = 40
SOCKET = "/run/containerd/containerd.sock"
KUBELET_PORT = 10250
MOST = 50

Json = dict[str, Any]  # configuration files


@dataclass(frozen=True, slots=True)
class RealNodeSpec:
    """What pods may use of a node; the rest of the machine is reserved for the system."""

    cpu_milli: int = CPU_MILLI
    memory_bytes: int = MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which the nodes are."""

    cpu_milli: int
    memory_bytes: int


def address(number: int) -> str:
    """Return the address of a node in the network of the nodes."""
    return f"10.99.0.{10 + number}"


def kubelet(spec: RealNodeSpec, machine: Machine, number: int, *, ca: Path) -> Json:
    """Return the KubeletConfiguration; timings are Kubernetes' defaults."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address(number),
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(ca)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "failCgroupV1": False,
        "failSwapOn": False,
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "maxPods": PODS,
        "systemReserved": {
            "cpu": f"{machine.cpu_milli - spec.cpu_milli}m",
            "memory": str(machine.memory_bytes - spec.memory_bytes),
        },
        # The disk is the host's: how full it is says nothing about the node.
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "imagefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.inodesFree": "0%",
        },
    }


def containerd(*, plugins: Path, network: Path, runc: Path) -> str:
    """Return the configuration of containerd."""
    runtime = 'plugins."io.containerd.cri.v1.runtime"'
    images = 'plugins."io.containerd.cri.v1.images"'
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{SOCKET}"
[{images}.pinned_images]
  sandbox = "{IMAGE}"
[{runtime}]
  # Lowering it takes a capability that containers of build systems do not have.
  restrict_oom_score_adj = true
[{runtime}.cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{network}"
[{runtime}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false
"""


def network(number: int) -> Json:
    """Return the network of a node's pods: a veth pair each, addresses by number of the node."""
    pods: Mapping[str, Any] = {
        "type": "ptp",
        "ipam": {
            "type": "host-local",
            "dataDir": "/var/lib/cni",
            "ranges": [[{"subnet": f"10.99.{100 + number}.0/24"}]],
        },
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [pods]}
