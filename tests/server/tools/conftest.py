"""The catalog built from all sources, without a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sources.source_fixture import SourceFixture, open_source_fixture


@pytest.fixture
async def fixture(tmp_path: Path) -> AsyncIterator[SourceFixture]:
    async with open_source_fixture(tmp_path) as opened:
        yield opened
