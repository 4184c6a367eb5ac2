"""A server with the accounts of two people."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.console.console_fixture import Console, console


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Console]:
    async with console(tmp_path) as site:
        await site.add_account("ada", "admin")
        await site.add_account("ben")
        yield site
