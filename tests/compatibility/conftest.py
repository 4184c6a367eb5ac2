"""The whole product with two users, without rate limits."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RestClient]:
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "rate_failures_per_minute": 0}
    async with open_rest_client(tmp_path, **unlimited) as client:
        yield client


@pytest.fixture
async def ada(api: RestClient) -> LibraryUser:
    return await api.library_user("ada")


@pytest.fixture
async def ben(api: RestClient) -> LibraryUser:
    return await api.library_user("ben")
