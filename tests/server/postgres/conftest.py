"""A second database, and the command line, for tests that also run a server."""

from collections.abc import Iterator

import pytest

from tests.server.cli.conftest import program
from tests.servers.postgres import create_database, drop_database
from tests.servers.shared import SharedServer

__all__ = ["program"]


@pytest.fixture
def other_database_url(postgres_server: SharedServer) -> Iterator[str]:
    url = create_database(postgres_server)
    yield url
    drop_database(postgres_server, url)
