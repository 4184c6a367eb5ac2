"""A REST client, with Ada and Ben as users of its server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.rest.rest_client import RestClient, open_rest_client_with_users
from tests.sources.source_fixture import LibraryUser


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with open_rest_client_with_users(tmp_path) as client:
        yield client


@pytest.fixture
async def ada(api: RestClient) -> LibraryUser:
    return await api.library_user("ada")


@pytest.fixture
async def ben(api: RestClient) -> LibraryUser:
    return await api.library_user("ben")
