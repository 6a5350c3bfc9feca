"""One service per module, which each test finds as if nobody had asked it yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.extender_service import Service, running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started() -> AsyncIterator[Service]:
    async with running() as service:
        yield service


@pytest.fixture
def service(started: Service) -> Service:
    started.begin()
    return started
