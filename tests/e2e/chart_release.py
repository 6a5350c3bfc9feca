# SPDX-License-Identifier: Apache-2.0
"""The release `evenkeel` on a real API server, put there and removed by helm itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from bench.stands.cluster import Cluster
from tests.support.deploy.chart import CHART, NAMESPACE, Json, Tools, objects
from tests.support.deploy.operator_kinds import operator_kinds

OURS: Final = (
    f"namespace/{NAMESPACE}",
    f"namespace/{NAMESPACE}-control-plane",
    "crd/migrations.evenkeel.io",
)
# Made and removed by others all the time; releases are Secrets, and those are looked at.
VOLATILE: Final = ("events", "leases", "componentstatuses", "endpoint", "pods", "podtemplates")


class Release:
    """What a user does with the chart, and what is left of it."""

    def __init__(self, cluster: Cluster, tools: Tools) -> None:
        self._cluster = cluster
        self._tools = tools

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Have the Prometheus Operator's kinds, and nothing of an earlier or this release."""
        await self._clear()
        async with operator_kinds(self.kubectl):
            try:
                yield
            finally:
                with contextlib.suppress(AssertionError):
                    await self.helm("uninstall")
                await self._clear()

    async def kubectl(self, *arguments: str) -> str:
        return await asyncio.to_thread(self._tools.kubectl, *arguments)

    async def helm(self, verb: str, *arguments: str) -> str:
        return await asyncio.to_thread(
            self._tools.helm, verb, "evenkeel", f"-n={NAMESPACE}", *arguments
        )

    async def put(self, verb: str, values: Json) -> str:
        """Install or upgrade with these values; return the notes."""
        file = self._tools.write(values)
        more = ("--create-namespace",) if verb == "install" else ()
        return await self.helm(verb, str(CHART), f"-f={file}", *more)

    async def check_strictly(self, values: Json) -> None:
        """Have the API server look at every field of what is rendered."""
        file = self._tools.write_rendered(values)
        strictly = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
        said = await self.kubectl("apply", *strictly, "-f", str(file))
        assert said.count("serverside-applied") == len(objects(file.read_text()))

    async def names(self) -> set[str]:
        """Return kind, namespace and name of all objects that last."""
        listed = (await self.kubectl("api-resources", "--verbs=list", "-o=name")).split()
        kinds = [k for k in listed if not k.startswith(VOLATILE) and "metrics.k8s.io" not in k]
        form = "-o=custom-columns=K:.kind,NS:.metadata.namespace,N:.metadata.name"
        text = await self.kubectl("get", ",".join(kinds), "-A", "--no-headers", form)
        return {" ".join(line.split()) for line in text.splitlines()}

    async def until_left(self, before: set[str], expected: set[str]) -> None:
        """Wait until of all that came with the release just this is left."""
        left: set[str] = set()

        async def settled() -> bool:
            nonlocal left
            left = await self.names() - before
            return left == expected

        with contextlib.suppress(AssertionError):
            await self._cluster.wait(settled, what="the release is gone")
        assert left == expected

    async def _clear(self) -> None:
        await self.kubectl("delete", "--ignore-not-found", "--wait", *OURS)
