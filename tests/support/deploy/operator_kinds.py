# SPDX-License-Identifier: Apache-2.0
"""The Prometheus Operator's kinds on a real API server, as long as a test needs them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final, Protocol

from controlplane.build import module_dir

OPERATOR: Final = ("github.com/prometheus-operator/prometheus-operator", "v0.85.0")
KINDS: Final = ("servicemonitors", "prometheusrules")


class Kubectl(Protocol):
    """kubectl as the administrator."""

    async def __call__(self, *arguments: str) -> str: ...


@contextlib.asynccontextmanager
async def operator_kinds(kubectl: Kubectl) -> AsyncIterator[None]:
    """Have the kinds served; afterwards they are gone, with all objects of theirs."""
    folder = module_dir(*OPERATOR) / "example" / "prometheus-operator-crd"
    paths = [str(folder / f"monitoring.coreos.com_{kind}.yaml") for kind in KINDS]
    files = [argument for path in paths for argument in ("-f", path)]
    await kubectl("apply", "--server-side", *files)
    await kubectl("wait", "--for=condition=Established", "--timeout=30s", *files)
    try:
        yield
    finally:
        await kubectl("delete", "--wait", *files)
