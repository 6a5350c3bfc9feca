# SPDX-License-Identifier: Apache-2.0
"""Both programs of a built image beside a simulated cluster, which runs as its own process.

Only the cluster comes from this machine's virtual environment. The programs have the image's
interpreter and packages, the shipped configuration, and the command of the manifests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from common.clock import SYSTEM
from common.kube.client import connect
from simulator.demo.programs import Programs
from simulator.demo.stands import install
from tests.support.deploy.image import Image
from tests.support.deploy.pod import RunningPods, image_running
from tests.support.deploy.render import CONTROL_PLANE
from tests.support.repository import DEPLOY

EXTENDER_PORT: Final = 8888
HEALTH: Final = {"extender": 8889, "rebalancer": 8890}
CONFIGURATIONS: Final = {
    "extender": DEPLOY / CONTROL_PLANE / "config",
    "rebalancer": DEPLOY / "base" / "config",
}
KUBECONFIG: Final = "/etc/kubeconfig"

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


@asynccontextmanager
async def beside_a_simulated_cluster(folder: Path, image: Image) -> AsyncIterator[RunningPods]:
    """Run both programs of an image in one pod, against three simulated nodes."""
    programs = Programs(folder, lambda _: None, clock=SYSTEM)
    written = folder / "kubeconfig"
    try:
        serve = ("simulator", "serve", "--port", "0", "--kubeconfig-out", str(written))
        cluster = programs.start("cluster", *serve)
        await cluster.until(lambda: [line for line in cluster.output() if line == "ready"])
        async with connect(kubeconfig=str(written), clock=SYSTEM) as client:
            await install(client, SYSTEM)
            server = client.server
        # The programs have a user of their own.
        written.chmod(0o644)
        pod = {
            "metadata": {"name": "both"},
            "spec": {"containers": [_container(name) for name in HEALTH]},
        }
        volumes = {**CONFIGURATIONS, "kubeconfig": written}
        ports = (EXTENDER_PORT,)
        async with image_running(
            folder / "pod", image, pod, volumes, server=server, ports=ports
        ) as running:
            yield running
    finally:
        await programs.end()


def _container(name: str) -> Json:
    return {
        "name": name,
        "command": ["python", "-m", name],
        "args": [
            f"--config=/etc/evenkeel/{name}.yaml",
            f"--kubeconfig={KUBECONFIG}",
            "--logging-format=json",
        ],
        "readinessProbe": {
            "httpGet": {"host": "127.0.0.1", "port": HEALTH[name], "path": "/readyz"}
        },
        "securityContext": {"readOnlyRootFilesystem": True, "runAsUser": 65532},
        "volumeMounts": [
            {"name": name, "mountPath": "/etc/evenkeel"},
            {"name": "kubeconfig", "mountPath": KUBECONFIG},
        ],
    }
