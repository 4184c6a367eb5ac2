"""Every test here works on Ada's library, on each engine; Ben's is another, and a bystander's stays empty."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from sources.storage.contract import Library
from tests.sources.storage.desk import ENGINES, Desk, OpenDesk, total_items


@pytest.fixture(params=ENGINES)
def open_desk(request: pytest.FixtureRequest, tmp_path: Path) -> OpenDesk:
    return partial(ENGINES[request.param], tmp_path / "data")


@pytest.fixture
async def desk(open_desk: OpenDesk) -> AsyncIterator[Desk]:
    async with open_desk() as desk:
        yield desk


@pytest.fixture
async def ada(desk: Desk) -> AsyncIterator[Library]:
    """Ada's library. When a test is done with it, a bystander's is looked at: nothing may have got there."""
    async with desk.library("ada") as library:
        yield library
    async with desk.library("cyd") as bystander:
        assert await total_items(bystander) == 0


@pytest.fixture
async def ben(desk: Desk) -> AsyncIterator[Library]:
    async with desk.library("ben") as library:
        yield library
