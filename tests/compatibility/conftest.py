"""The whole product before Ada and Ben: every tool and every route."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.rest.scene import Desk, open_desk
from tests.sources.source_fixture import LibraryUser


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "rate_failures_per_minute": 0}
    async with open_desk(tmp_path, **unlimited) as opened:
        yield opened


@pytest.fixture
async def ada(desk: Desk) -> LibraryUser:
    return await desk.reader("ada")


@pytest.fixture
async def ben(desk: Desk) -> LibraryUser:
    return await desk.reader("ben")
