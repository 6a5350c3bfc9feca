# SPDX-License-Identifier: Apache-2.0
"""What the containers of a played pod find in their roots: the images, without an engine.

The image of the Dockerfile has its layout, environment and working folder, with this
repository's sources and virtual environment in place of the copied ones (`deploy_build` makes
the real contents). The scheduler's image holds its binary and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bench.stands.cluster import Cluster
from tests.support.deploy.dockerfile import stages
from tests.support.repository import ROOT

DEVICES: Final = ("/dev/null", "/dev/urandom")
SYSTEM: Final = ("/usr", *DEVICES)
PACKAGES: Final = ("common", "console", "evenkeel", "extender", "rebalancer")
LINKS: Final = {"/lib": "usr/lib", "/lib64": "usr/lib64", "/bin": "usr/bin"}


@dataclass(frozen=True, slots=True)
class Image:
    """What a container finds in its root, and what its image sets."""

    mounts: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"


def evenkeel_image() -> Image:
    """Return the image of the Dockerfile, with what this machine has in it."""
    final = stages()[-1]
    sources = {f"/app/{name}": str(ROOT / name) for name in PACKAGES}
    python = {"/opt/evenkeel": sys.prefix, sys.base_prefix: sys.base_prefix}
    return Image(
        mounts={**{path: path for path in SYSTEM}, **python, **sources},
        links=LINKS,
        environment=final.environment,
        workdir=final.last("WORKDIR"),
    )


def scheduler_image(cluster: Cluster) -> Image:
    """Return an image that holds kube-scheduler and nothing else."""
    binary = cluster.control_plane.kubectl.with_name("kube-scheduler")
    return Image(
        mounts={"/usr/local/bin/kube-scheduler": str(binary)},
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
