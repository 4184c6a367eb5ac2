"""The reading room, for what the catalog makes of the sources."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sources.reading_room import Reader, Room, open_room


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with open_room(tmp_path) as opened:
        yield opened


@pytest.fixture
def ada(room: Room) -> Reader:
    return room.ada


@pytest.fixture
def ben(room: Room) -> Reader:
    return room.ben
