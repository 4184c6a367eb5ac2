"""Tests in this folder use Ada's library, on each engine. Ben's library is separate.

With `TEST_CITUS_URL`, Citus is one of the engines.
"""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from sources.storage.contract import Library
from tests.servers.citus import citus_server, has_citus
from tests.servers.postgres import create_database, drop_database
from tests.servers.shared import SharedServer
from tests.sources.storage.library_fixture import (
    LibraryFixture,
    OpenLibraries,
    open_postgres,
    open_sqlite_with_libraries,
    total_items,
)
from tests.sources.storage.reused_schemas import ReusedSchemas

_POSTGRES_ENGINES = [pytest.param(name) for name in ("postgres", *(["citus"] if has_citus() else []))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests run on SQLite, and on PostgreSQL if the module or the test has the mark `postgres`. One with the mark
    `sqlite` needs SQLite."""
    if "open_libraries" in metafunc.fixturenames:
        marks = {mark.name for mark in metafunc.definition.iter_markers()}
        engines = [pytest.param("sqlite", marks=pytest.mark.sqlite)]
        if "postgres" in marks and "sqlite" not in marks:
            engines += _POSTGRES_ENGINES
        metafunc.parametrize("open_libraries", engines, indirect=True)


@pytest.fixture(scope="session")
def shared_database_url(postgres_server: SharedServer) -> Iterator[str]:
    """A PostgreSQL database for all tests of this process, which have users of their own."""
    url = create_database(postgres_server)
    yield url
    drop_database(postgres_server, url)


def _engine_url(request: pytest.FixtureRequest) -> str:
    url: str = citus_server().url if request.param == "citus" else request.getfixturevalue("shared_database_url")
    return url


@pytest.fixture(params=_POSTGRES_ENGINES, scope="module")
def engine_url(request: pytest.FixtureRequest) -> str:
    """A database that tests share."""
    return _engine_url(request)


@pytest.fixture
def id_ending() -> str:
    """Makes the users of a test different from those of all others in the same database."""
    return uuid4().hex.translate(str.maketrans("0189", "wxyz"))


@pytest.fixture
def open_libraries(request: pytest.FixtureRequest, tmp_path: Path, id_ending: str) -> OpenLibraries:
    if request.param == "sqlite":
        return partial(open_sqlite_with_libraries, tmp_path / "data")
    # Other processes use the database of Citus at the same time.
    schemas = ReusedSchemas(id_ending) if request.param == "postgres" else None
    return partial(open_postgres, _engine_url(request), tmp_path / "data", id_ending, schemas=schemas)


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
