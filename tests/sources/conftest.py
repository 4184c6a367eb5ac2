"""Two users and a dispatcher, for every test of the sources."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sources.source_fixture import LibraryUser, SourceFixture, open_source_fixture


@pytest.fixture
async def fixture(tmp_path: Path) -> AsyncIterator[SourceFixture]:
    async with open_source_fixture(tmp_path) as opened:
        yield opened


@pytest.fixture
def ada(fixture: SourceFixture) -> LibraryUser:
    return fixture.ada


@pytest.fixture
def ben(fixture: SourceFixture) -> LibraryUser:
    return fixture.ben
