"""Libraries in a PostgreSQL database of their own."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from config.paths import DataRoot
from sources.storage.contract import Libraries
from sources.storage.postgres import PostgresLibraries, PostgresOptions
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.schema import LibrarySchemas
from tests.build_settings import build_settings
from tests.sources.storage.library_fixture import Clock, LibraryFixture

OpenEngine = Callable[..., AbstractAsyncContextManager[tuple[PostgresLibraries, LibraryFixture]]]


@asynccontextmanager
async def _open(
    url: str,
    root: Path,
    *,
    options: dict[str, Any] | None = None,
    schemas: LibrarySchemas | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[PostgresLibraries, LibraryFixture]]:
    clock = Clock()
    engine = PostgresLibraries(
        PostgresOptions(**{"url": url, "connections": 3, **(options or {})}),
        build_settings(**settings),
        clock,
        clock,
        schemas=schemas,
    )
    try:
        yield engine, LibraryFixture(DataRoot(root), cast("Libraries", engine), clock)
    finally:
        await engine.close()


@pytest.fixture
def open_engine(database_url: str, tmp_path: Path) -> OpenEngine:
    """Opens an engine. Several of them in one database are like several servers."""
    return partial(_open, database_url, tmp_path)


@pytest.fixture
def statements_run(monkeypatch: pytest.MonkeyPatch) -> list[LibraryConnection]:
    """Has the connection of each statement that jobs of libraries run."""
    connections: list[LibraryConnection] = []
    wait = LibraryConnection.wait

    def counted_wait(connection: LibraryConnection, operation: Coroutine[Any, Any, Any]) -> Any:
        connections.append(connection)
        return wait(connection, operation)

    monkeypatch.setattr(LibraryConnection, "wait", counted_wait)
    return connections
