# SPDX-License-Identifier: Apache-2.0
"""One service per module; for each test its counters start again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.stands.extender_service import Service, running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started() -> AsyncIterator[Service]:
    async with running() as service:
        yield service


@pytest.fixture
def service(started: Service) -> Service:
    started.begin()
    return started
