"""Fixtures: a registry on each engine, with a manual clock."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from auth.registry import ControlLocation, Registry
from config.postgres.connection import ConnectionOptions
from tests.auth.auth_fixture import FakeClock
from tests.servers.control import delete_control_data
from tests.servers.postgres import create_database, drop_database
from tests.servers.shared import SharedServer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def control_path(tmp_path: Path) -> Path:
    return tmp_path / "control.db"


@pytest.fixture(scope="module")
def module_database_url(postgres_server: SharedServer) -> Iterator[str]:
    """A PostgreSQL database that the tests of a module share, because creating one takes long."""
    url = create_database(postgres_server)
    yield url
    drop_database(postgres_server, url)


@pytest.fixture
def postgres_location(module_database_url: str) -> ConnectionOptions:
    """A PostgreSQL database without users."""
    delete_control_data(module_database_url)
    return ConnectionOptions(url=module_database_url)


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.sqlite), "postgresql"])
def control_location(request: pytest.FixtureRequest, control_path: Path) -> ControlLocation:
    """An empty control database of each engine."""
    if request.param == "sqlite":
        return control_path
    location: ConnectionOptions = request.getfixturevalue("postgres_location")
    return location


@pytest.fixture
async def registry(control_location: ControlLocation, clock: FakeClock) -> AsyncIterator[Registry]:
    async with Registry.open(control_location, clock=clock) as registry:
        yield registry
