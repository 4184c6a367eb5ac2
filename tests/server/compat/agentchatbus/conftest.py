"""The desk, with Ada and Ben as readers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.rest.scene import Desk, open_desk
from tests.sources.reading_room import Reader


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path) as opened:
        yield opened


@pytest.fixture
async def ada(desk: Desk) -> Reader:
    return await desk.reader("ada")


@pytest.fixture
async def ben(desk: Desk) -> Reader:
    return await desk.reader("ben")
