"""Tests in this folder use Ada's library, on each engine. Ben's library is separate."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from sources.storage.contract import Library
from tests.sources.storage.library_fixture import ENGINES, LibraryFixture, OpenLibraries, total_items


@pytest.fixture(params=ENGINES)
def open_libraries(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLibraries:
    return partial(ENGINES[request.param], tmp_path / "data")


@pytest.fixture
async def libraries(open_libraries: OpenLibraries) -> AsyncIterator[LibraryFixture]:
    async with open_libraries() as libraries:
        yield libraries


@pytest.fixture
async def ada(libraries: LibraryFixture) -> AsyncIterator[Library]:
    """Ada's library. After the test, the library of a user who was not involved must be empty."""
    async with libraries.library("ada") as library:
        yield library
    async with libraries.library("cyd") as bystander:
        assert await total_items(bystander) == 0


@pytest.fixture
async def ben(libraries: LibraryFixture) -> AsyncIterator[Library]:
    async with libraries.library("ben") as library:
        yield library
