# SPDX-License-Identifier: Apache-2.0
"""A load-aware scheduler to compare with: Trimaran's LoadVariationRiskBalancing.

Compiled from `sigs.k8s.io/scheduler-plugins`, which is based on kube-scheduler v1.34, into the
user's cache folder. Trimaran places pods by measured load and moves none, so in the arena it
is the scheduler beside descheduler. Its own client reads the metrics API every 30 seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from controlplane.ports import free_ports

VERSION: Final = "v0.34.7"
SOURCE: Final = Path(__file__).resolve().parent / "trimaran_scheduler"
PLUGIN: Final = "LoadVariationRiskBalancing"


def build() -> Path:
    """Return the binary, compiled if it is not in the cache."""
    binary = _binary()
    if not binary.exists():
        print(f"building kube-scheduler with Trimaran {VERSION} (once, minutes) …", flush=True)
        binary.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=binary.parent) as scratch:
            shutil.copytree(SOURCE, scratch, dirs_exist_ok=True)
            made = Path(scratch, "trimaran")
            command = ["go", "build", "-mod=mod", "-ldflags", "-s -w", "-o", str(made), "."]
            environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}
            subprocess.run(command, cwd=scratch, env=environment, check=True)
            made.rename(binary)
    return binary


@contextmanager
def scheduler(binary: Path, kubeconfig: Path, folder: Path) -> Iterator[None]:
    """Run the scheduler until the block ends."""
    config = folder / "trimaran.yaml"
    config.write_text(yaml.safe_dump(_config(kubeconfig)))
    (port,) = free_ports(1)
    command = [
        str(binary),
        f"--config={config}",
        "--authentication-skip-lookup",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'trimaran-certificates'}",
    ]
    # load-watcher, its client of the metrics API, reads this variable.
    environment = {**os.environ, "KUBE_CONFIG": str(kubeconfig)}
    with (
        (folder / "trimaran.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError((folder / "trimaran.log").read_text()[-2000:])
        finally:
            process.terminate()


def _config(kubeconfig: Path) -> dict[str, Any]:
    """Return its configuration as its README recommends: without the scores by requests."""
    by_requests = [{"name": "NodeResourcesBalancedAllocation"}, {"name": "NodeResourcesFit"}]
    score = {"disabled": by_requests, "enabled": [{"name": PLUGIN}]}
    arguments = {"metricProvider": {"type": "KubernetesMetricsServer"}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "percentageOfNodesToScore": 100,
                "plugins": {"score": score},
                "pluginConfig": [{"name": PLUGIN, "args": arguments}],
            }
        ],
    }


def _binary() -> Path:
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("EVENKEEL_CACHE") or user / "evenkeel")
    return cache / "trimaran" / VERSION / "trimaran-scheduler"
