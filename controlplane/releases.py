# SPDX-License-Identifier: Apache-2.0
"""The releases of Kubernetes that a control plane can be built from.

Of each supported minor version the newest patch release whose source is in the Go module proxy.
A release brings its own etcd and the Go language version that its commands were written for:
both are in its go.mod, and a control plane with others would not be the one that people run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from controlplane.errors import ConfigError

CHOICE: Final = "EVENKEEL_KUBERNETES"
"""The environment variable that chooses another release, for tests and benchmarks."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release, with what its go.mod says: its etcd, and `godebug default`."""

    kubernetes: str
    etcd: str
    go: str

    @property
    def minor(self) -> str:
        """The version without its patch number, as people speak of it: `1.36`."""
        return self.kubernetes.removeprefix("v").rpartition(".")[0]


RELEASES: Final = (
    Release("v1.32.13", etcd="v3.5.16", go="1.23"),
    Release("v1.33.13", etcd="v3.5.21", go="1.24"),
    Release("v1.34.10", etcd="v3.6.4", go="1.24"),
    Release("v1.35.8", etcd="v3.6.5", go="1.25"),
    Release("v1.36.4", etcd="v3.6.8", go="1.26"),
    Release("v1.37.1", etcd="v3.7.0", go="1.26"),
)


def find_release(text: str) -> Release:
    """Return the release of a version such as `1.36`, `v1.36` or `v1.36.4`."""
    wanted = text.removeprefix("v")
    for release in RELEASES:
        if wanted in (release.minor, release.kubernetes.removeprefix("v")):
            return release
    known = ", ".join(release.kubernetes for release in RELEASES)
    raise ConfigError(
        f"no control plane can be built from Kubernetes {text}: choose one of {known}"
    )


DEFAULT: Final = find_release("1.36")


def chosen_release() -> Release:
    """Return the release that the environment names, or the default."""
    named = os.environ.get(CHOICE)
    return find_release(named) if named else DEFAULT
