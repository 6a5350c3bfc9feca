# SPDX-License-Identifier: Apache-2.0
"""kube-scheduler's static pod as kubeadm writes it, for trying out the patch of it.

After `GetStaticPodSpecs` and `getSchedulerCommand` in cmd/kubeadm/app/phases/controlplane
(manifests.go, volumes.go) of v1.36.4, as far as a container and its mounts are concerned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

KUBECONFIG: Final = "/etc/kubernetes/scheduler.conf"
CONFIG: Final = "/etc/kubernetes/scheduler-config.yaml"

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


def kubeadm_scheduler() -> Json:
    """Return the manifest that stands in /etc/kubernetes/manifests."""
    probe = {"host": "127.0.0.1", "path": "/readyz", "port": "probe-port", "scheme": "HTTPS"}
    container = {
        "name": "kube-scheduler",
        "image": "registry.k8s.io/kube-scheduler:v1.36.4",
        "command": [
            "kube-scheduler",
            f"--authentication-kubeconfig={KUBECONFIG}",
            f"--authorization-kubeconfig={KUBECONFIG}",
            "--bind-address=127.0.0.1",
            f"--kubeconfig={KUBECONFIG}",
            "--leader-elect=true",
        ],
        "ports": [{"name": "probe-port", "containerPort": 10259, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": probe},
        "volumeMounts": [{"name": "kubeconfig", "mountPath": KUBECONFIG, "readOnly": True}],
    }
    volume = {"name": "kubeconfig", "hostPath": {"path": KUBECONFIG, "type": "FileOrCreate"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {"containers": [container], "hostNetwork": True, "volumes": [volume]},
    }


def kubeconfig_inside(kubeconfig: Path, server: str, folder: Path) -> Path:
    """Write a kubeconfig that reaches the API server at the address it has inside."""
    content = yaml.safe_load(kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = server
    path = folder / "scheduler.conf"
    path.write_text(yaml.safe_dump(content))
    return path
