"""Libraries of several users on a storage engine, for tests."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import Struct

from auth.context import SCOPES, ClientId, Principal, RequestContext, build_context
from config.paths import DataRoot, UserId
from sources.query import parse
from sources.records import HitPage
from sources.semantic.service import SemanticService
from sources.storage.contract import Libraries, Library, Search
from sources.storage.postgres import PostgresLibraries, PostgresOptions
from sources.storage.postgres.schema import LibrarySchemas
from sources.storage.sqlite import SqliteLibraries
from tests.build_settings import build_settings
from tests.prepared_libraries import copy_libraries, created_libraries
from tests.servers.storage import WORDS_ONLY, has_database, storage_settings, uses_postgres

START_S = 1_800_000_000.0


class Clock:
    """A clock that advances by one second whenever it is read."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


class LibraryFixture(Struct, frozen=True):
    """Opens the libraries of users, whose names consist of the letters a to y."""

    data_root: DataRoot
    engine: Libraries
    clock: Clock
    # Completes the ids of users, so that the users of different tests can be in one database.
    id_ending: str = "z" * 26
    # The files of an empty library, which a user without files gets.
    empty_files: Path | None = None

    def context(self, owner: str, client: str = "test-client", *, is_agent: bool = False) -> RequestContext:
        user_id = UserId(f"u_{owner}{self.id_ending}"[:28])
        principal = Principal(user_id, owner, ClientId(client), frozenset(SCOPES), "local", owner)
        return build_context(principal, self.data_root, "request", is_agent=is_agent)

    def library(self, owner: str, client: str = "test-client") -> AbstractAsyncContextManager[Library]:
        context = self.context(owner, client)
        if self.empty_files is not None:
            home = self.data_root.paths_of(context.user_id).media.parent
            if not home.exists():
                shutil.copytree(self.empty_files, home)
        return self.engine.library(context)

    async def embed(self, owner: str) -> None:
        """Waits until all text of a user is embedded."""
        await self.engine.embed(self.context(owner).user_id)


OpenLibraries = Callable[..., AbstractAsyncContextManager[LibraryFixture]]


@asynccontextmanager
async def open_library_fixture(
    root: Path, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[LibraryFixture]:
    """Opens libraries on the storage engine of this run."""
    if not uses_postgres():
        async with open_sqlite(root, clock, **settings) as libraries:
            yield libraries
        return
    if not has_database(root):
        copy_libraries(_create_postgres_libraries, root)
    async with _open_own_database(root, clock, **settings) as libraries:
        yield libraries


@asynccontextmanager
async def open_sqlite(root: Path, clock: Clock | None = None, **settings: Any) -> AsyncIterator[LibraryFixture]:
    data_root = DataRoot(root)
    data_root.prepare()
    clock = clock or Clock()
    settings = {**WORDS_ONLY, **settings}
    semantic = SemanticService(build_settings(data_dir=str(root), **settings))
    engine = SqliteLibraries(data_root, build_settings(**settings), clock, clock, semantic)
    try:
        yield LibraryFixture(data_root, engine, clock)
    finally:
        await engine.close()
        await semantic.close()


@asynccontextmanager
async def open_postgres(
    url: str,
    root: Path,
    id_ending: str,
    clock: Clock | None = None,
    schemas: LibrarySchemas | None = None,
    **settings: Any,
) -> AsyncIterator[LibraryFixture]:
    """Opens libraries in a database that tests share. Each test has an ending of user ids."""
    data_root = DataRoot(root)
    clock = clock or Clock()
    options = PostgresOptions(url=url, connections=3, connect_timeout_s=30.0, statement_cache=100)
    settings = {**WORDS_ONLY, **settings}
    semantic = SemanticService(build_settings(data_dir=str(root), **settings))
    engine = PostgresLibraries(options, build_settings(**settings), clock, clock, semantic, schemas=schemas)
    try:
        yield LibraryFixture(data_root, engine, clock, id_ending)
    finally:
        await engine.close()
        await semantic.close()


@asynccontextmanager
async def open_sqlite_with_libraries(
    root: Path, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[LibraryFixture]:
    """Opens an engine on which some users have empty libraries."""
    if not root.exists():
        copy_libraries(_create_libraries, root)
    async with open_sqlite(root, clock, **settings) as libraries:
        yield libraries


def empty_library_files() -> Path:
    """Returns a directory with the files of a library in which nothing was written. Copying it is faster than creating
    them."""
    return next((created_libraries(_create_libraries) / "users").glob("*/u_*"))


async def _create_libraries(root: Path) -> None:
    async with open_sqlite(root) as libraries:
        await _use_libraries(libraries)


async def _create_postgres_libraries(root: Path) -> None:
    async with _open_own_database(root) as libraries:
        await _use_libraries(libraries)


async def _use_libraries(libraries: LibraryFixture) -> None:
    for owner in ("ada", "ben", "cyd"):
        async with libraries.library(owner) as library:
            await total_items(library)


def _open_own_database(
    root: Path, clock: Clock | None = None, **settings: Any
) -> AbstractAsyncContextManager[LibraryFixture]:
    DataRoot(root).prepare()
    return open_postgres(storage_settings(root)["storage_url"], root, "z" * 26, clock, **settings)


def new_id_ending() -> str:
    """Returns what makes users different from all others in the same database."""
    return uuid4().hex.translate(str.maketrans("0189", "wxyz"))


def make_search(text: str, limit: int = 10, offset: int = 0, **filters: Any) -> Search:
    return Search(query=parse(text), limit=limit, offset=offset, deadline_ms=10_000, **filters)


def ids(page: HitPage) -> list[str | int]:
    return [hit.id for hit in page.hits]


def titles(page: HitPage) -> list[str]:
    return [hit.title for hit in page.hits]


async def total_items(library: Library) -> int:
    collections = (library.notes, library.media, library.chats, library.characters, library.prompts)
    return sum([(await collection.list(0, 0)).total for collection in collections])
