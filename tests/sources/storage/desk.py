"""A desk with several owners, each with a library of their own, whichever engine keeps them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from auth.context import RequestContext, build_context
from auth.principal import SCOPES, ClientId, Principal
from config.paths import DataRoot, UserId
from config.settings import Settings
from sources.query import parse
from sources.records import HitPage
from sources.storage.contract import Libraries, Library, Search
from sources.storage.sqlite import SqliteLibraries

FIRST_MOMENT_S = 1_800_000_000.0


class Clock:
    """Time that moves by a second whenever somebody looks."""

    def __init__(self) -> None:
        self.now_s = FIRST_MOMENT_S

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


class Desk(Struct, frozen=True):
    """Where libraries are asked for. Owners are named with the letters a to y."""

    data_root: DataRoot
    libraries: Libraries
    clock: Clock

    def context(self, owner: str, client: str = "desk", *, is_agent: bool = False) -> RequestContext:
        user_id = UserId(f"u_{owner:z<26}")
        principal = Principal(user_id, owner, ClientId(client), frozenset(SCOPES), "local", owner)
        return build_context(principal, self.data_root, "request", is_agent=is_agent)

    def library(self, owner: str, client: str = "desk") -> AbstractAsyncContextManager[Library]:
        return self.libraries.library(self.context(owner, client))


OpenDesk = Callable[..., AbstractAsyncContextManager[Desk]]


@asynccontextmanager
async def open_sqlite(root: Path, clock: Clock | None = None, **settings: Any) -> AsyncIterator[Desk]:
    data_root = DataRoot(root)
    data_root.prepare()
    clock = clock or Clock()
    libraries = SqliteLibraries(data_root, Settings(**settings), clock)
    try:
        yield Desk(data_root, libraries, clock)
    finally:
        await libraries.close()


# An engine is added here; the tests of this folder, but not of its sub-folders, hold for every one.
ENGINES: dict[str, OpenDesk] = {"sqlite": open_sqlite}


def ask(text: str, limit: int = 10, offset: int = 0, **narrowing: Any) -> Search:
    return Search(query=parse(text), limit=limit, offset=offset, deadline_ms=10_000, **narrowing)


def ids(found: HitPage) -> list[str | int]:
    return [hit.id for hit in found.hits]


def titles(found: HitPage) -> list[str]:
    return [hit.title for hit in found.hits]


async def total_items(library: Library) -> int:
    collections = (library.notes, library.media, library.chats, library.characters, library.prompts)
    return sum([(await collection.list(0, 0)).total for collection in collections])
