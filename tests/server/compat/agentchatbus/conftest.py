"""The desk, with Ada and Ben as readers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.rest.scene import Desk, open_desk
from tests.sources.source_fixture import LibraryUser


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path) as opened:
        yield opened


@pytest.fixture
async def ada(desk: Desk) -> LibraryUser:
    return await desk.reader("ada")


@pytest.fixture
async def ben(desk: Desk) -> LibraryUser:
    return await desk.reader("ben")
