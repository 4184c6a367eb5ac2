"""A REST client of a server without users: tests create those that they need."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.rest.rest_client import RestClient, open_rest_client


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with open_rest_client(tmp_path) as client:
        yield client
