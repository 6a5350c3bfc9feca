# SPDX-License-Identifier: Apache-2.0
"""The base of everything that tests put in the place of a `KubeClient`.

A double overrides `request`, or just the verbs that its test expects. Any other call fails
the test, and names the request that was not expected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from common.kube.api import JSON_TYPE, MAX_OBJECT_BYTES, KubeApi, Params


class PartialKubeApi(KubeApi):
    """Answers nothing by itself."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content_type: str = JSON_TYPE,
        timeout_s: float | None = None,
        max_bytes: int = MAX_OBJECT_BYTES,
    ) -> bytes:
        raise NotImplementedError(f"{method} {path}")

    def stream(
        self, path: str, *, params: Params, connect_s: float, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError(f"watch of {path}")
