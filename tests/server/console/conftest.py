"""A server with the accounts of two people, and one with the libraries of Ada and Ben."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.console.console_fixture import Console, console
from tests.server.rest.rest_client import RestClient, open_rest_client_with_users
from tests.sources.source_fixture import LibraryUser


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Console]:
    async with console(tmp_path) as site:
        await site.add_account("ada", "admin")
        await site.add_account("ben")
        yield site


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
