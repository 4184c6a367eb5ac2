"""A server with the accounts of two people."""

from collections.abc import AsyncIterator

import pytest

from tests.server.console.console_fixture import Console, console


@pytest.fixture(scope="module")
async def shared_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Console]:
    async with console(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
async def site(shared_site: Console) -> AsyncIterator[Console]:
    """The shared server, on which all accounts of a test are new."""
    await shared_site.add_account("ada", "admin")
    await shared_site.add_account("ben")
    yield shared_site
    await shared_site.server.forget_users()
