"""Tests in this folder use Ada's library, on each engine. Ben's library is separate.

The tests of a module share an engine, on which each test has users of its own. A test that needs other settings, or
opens its libraries again, uses `open_libraries`. With `TEST_CITUS_URL`, Citus is one of the engines.
"""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from config.paths import UserId
from sources.storage.contract import Library
from tests.servers.citus import citus_server, has_citus
from tests.servers.postgres import create_database, drop_database
from tests.servers.shared import SharedServer
from tests.servers.shared_models import shared_models
from tests.sources.storage.library_fixture import (
    LibraryFixture,
    OpenLibraries,
    empty_library_files,
    new_id_ending,
    open_postgres,
    open_sqlite,
    open_sqlite_with_libraries,
    total_items,
)

_POSTGRES_ENGINES = ["postgres", *(["citus"] if has_citus() else [])]
_SECOND_ENGINE = pytest.mark.slow("shows on PostgreSQL what the first tier shows on SQLite")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests run on SQLite, and on PostgreSQL if the module or the test has the mark `postgres`: in the second tier,
    or in both with `postgres(is_contract=True)`. One with the mark `sqlite` needs SQLite."""
    if "engine_name" not in metafunc.fixturenames:
        return
    engines = [pytest.param("sqlite", marks=pytest.mark.sqlite)]
    marks = {mark.name: mark for mark in metafunc.definition.iter_markers()}
    if "postgres" in marks and "sqlite" not in marks:
        tier = () if marks["postgres"].kwargs.get("is_contract") else _SECOND_ENGINE
        engines += [pytest.param(name, marks=tier) for name in _POSTGRES_ENGINES]
    metafunc.parametrize("engine_name", engines, scope="module", indirect=True)


# The processes of models have tests of their own, in tests/sources/semantic.
@pytest.fixture(scope="package", autouse=True)
def _models_in_this_process() -> Iterator[None]:
    with shared_models():
        yield


@pytest.fixture(scope="session")
def shared_database_url(postgres_server: SharedServer) -> Iterator[str]:
    """A PostgreSQL database for all tests of this process, which have users of their own."""
    url = create_database(postgres_server)
    yield url
    drop_database(postgres_server, url)


def _engine_url(name: str, request: pytest.FixtureRequest) -> str:
    url: str = citus_server().url if name == "citus" else request.getfixturevalue("shared_database_url")
    return url


@pytest.fixture(params=_POSTGRES_ENGINES, scope="module")
def engine_url(request: pytest.FixtureRequest) -> str:
    """A database that tests share."""
    return _engine_url(request.param, request)


@pytest.fixture(scope="module")
def engine_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def storage_url(engine_name: str, request: pytest.FixtureRequest) -> str:
    return "" if engine_name == "sqlite" else _engine_url(engine_name, request)


@pytest.fixture
def id_ending() -> str:
    """Makes the users of a test different from those of all others in the same database."""
    return new_id_ending()


@pytest.fixture
def open_libraries(engine_name: str, storage_url: str, tmp_path: Path, id_ending: str) -> OpenLibraries:
    if engine_name == "sqlite":
        return partial(open_sqlite_with_libraries, tmp_path / "data")
    return partial(open_postgres, storage_url, tmp_path / "data", id_ending)


@pytest.fixture(scope="module")
def library_settings() -> dict[str, Any]:
    """The settings of the shared engine, which a module can change."""
    return {}


@pytest.fixture(scope="module")
async def shared_engine(
    engine_name: str,
    storage_url: str,
    library_settings: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[LibraryFixture]:
    """An engine for the tests of a module. After them, the library of a user who was not involved must be empty."""
    root, ending = tmp_path_factory.mktemp("libraries"), new_id_ending()
    if engine_name == "sqlite":
        opened = open_sqlite(root, **library_settings)
    else:
        opened = open_postgres(storage_url, root, ending, **library_settings)
    async with opened as libraries:
        yield libraries
        async with libraries.library("cyd") as bystander:
            assert await total_items(bystander) == 0


@pytest.fixture
async def libraries(shared_engine: LibraryFixture, engine_name: str, id_ending: str) -> AsyncIterator[LibraryFixture]:
    """The libraries of users whom no other test has."""
    shared = shared_engine
    if engine_name != "sqlite":
        yield LibraryFixture(shared.data_root, shared.engine, shared.clock, id_ending)
        return
    fixture = LibraryFixture(shared.data_root, shared.engine, shared.clock, id_ending, empty_library_files())
    yield fixture
    for directory in (shared.data_root.root / "users").glob("*/u_*"):
        await shared.engine.remove(UserId(directory.name))


@pytest.fixture
async def ada(libraries: LibraryFixture) -> AsyncIterator[Library]:
    async with libraries.library("ada") as library:
        yield library


@pytest.fixture
async def ben(libraries: LibraryFixture) -> AsyncIterator[Library]:
    async with libraries.library("ben") as library:
        yield library
