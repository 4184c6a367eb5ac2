"""Sources that a test makes up, and a libraries before which two users ask all of them at once."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from aggregator.breaker import Breaker
from aggregator.responses import KnowledgeAnswer
from aggregator.search import Aggregator, KnowledgeSearch
from auth.context import RequestContext, SessionId, build_context
from config.errors import StorageError
from config.paths import DataRoot
from config.settings import Settings
from sessions.state import InProcessSessionStates, SessionStateLimits
from sources.items import GetResponse, ResultItem, SearchResponse
from sources.query import ParsedQuery
from sources.records import ListPage
from sources.search.arguments import SearchArguments
from sources.source import Entry, Matches, Reading, SourceResource, SourceTool, as_matches
from sources.storage.contract import (
    Bookmarks,
    Characters,
    Chats,
    Corpus,
    Library,
    Media,
    Notes,
    Observations,
    Prompts,
)
from tests.server.protocol.dispatcher_fixture import make_principal


class ShelfSearch(SearchArguments, frozen=True, kw_only=True):
    colours: tuple[str, ...] = ()
    pages: int | None = None


def hit(
    source: str,
    number: int | str,
    score: float = 0.5,
    *,
    modified: str | None = "2026-01-01T00:00:00.000Z",
    text: str | None = None,
    item: int | str | None = None,
    version: int = 1,
) -> ResultItem:
    """A hit of a text of its own, unless one is given; `item` is what it is part of, unless it is whole."""
    return ResultItem(
        id=number if item is None else item,
        source=source,
        title=f"{source} {number}",
        snippet=text or f"A passage of {source} {number}.",
        uri=f"{source}://{number}" if item is None else f"{source}://{item}/{number}",
        score=score,
        created_at=None,
        last_modified=modified,
        version=version,
        tags=(),
        cost_tokens=10,
    )


class Shelf:
    """A source of given hits, in the order given or by date."""

    title = "Shelf"
    mime_type = "text/plain"
    search_input = ShelfSearch
    tools: Sequence[SourceTool] = ()
    resources: Sequence[SourceResource] = ()

    def __init__(self, name: str, hits: Sequence[ResultItem] = (), *, knows_total: bool = True) -> None:
        self.name = name
        self.hits = list(hits)
        self.knows_total = knows_total
        self.asked: list[ShelfSearch] = []

    async def search(self, context: RequestContext, library: Library, asked: ShelfSearch) -> Matches:
        self.asked.append(asked)
        hits = self.hits
        if context.config.get("order_by") == "recent":
            hits = sorted(sorted(hits, key=lambda h: h.uri), key=lambda h: h.last_modified or "", reverse=True)
        end = asked.offset + asked.limit
        has_more = end < len(hits)
        return as_matches(
            SearchResponse(
                results=tuple(hits[asked.offset : end]),
                has_more=has_more,
                next_offset=end if has_more else None,
                total_estimated=len(hits) if self.knows_total else None,
            )
        )

    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse:
        raise NotImplementedError

    async def entries(self, context: RequestContext, library: Library, limit: int, offset: int) -> ListPage[Entry]:
        return ListPage((), 0)


class FailingShelf(Shelf):
    """Raises what it was given, from the n-th call on."""

    def __init__(self, name: str, error: BaseException, hits: Sequence[ResultItem] = (), *, after: int = 0) -> None:
        super().__init__(name, hits)
        self.error: BaseException | None = error
        self.after = after

    async def search(self, context: RequestContext, library: Library, asked: ShelfSearch) -> Matches:
        answer = await super().search(context, library, asked)
        if self.error is not None and len(self.asked) > self.after:
            raise self.error
        return answer


class HangingShelf(Shelf):
    """Never answers; `was_let_go` tells that it was cut off."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.was_let_go = False

    async def search(self, context: RequestContext, library: Library, asked: ShelfSearch) -> Matches:
        try:
            await asyncio.Event().wait()
        finally:
            self.was_let_go = True
        raise AssertionError


class StubbornShelf(Shelf):
    """Does not even stop when it is told to, until the test ends it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.end = asyncio.Event()

    async def search(self, context: RequestContext, library: Library, asked: ShelfSearch) -> Matches:
        while not self.end.is_set():
            try:
                await self.end.wait()
            except asyncio.CancelledError:
                continue
        return as_matches(SearchResponse(results=(), has_more=False, next_offset=None, total_estimated=0))


class GarbageShelf(Shelf):
    """Answers whatever it was given."""

    def __init__(self, name: str, answer: Any) -> None:
        super().__init__(name)
        self.answer = answer

    async def search(self, context: RequestContext, library: Library, asked: ShelfSearch) -> Matches:
        answer: Matches = self.answer
        return answer


class BareLibrary:
    """For sources that hold their own hits. Its words can be counted, or counting them fails."""

    def __init__(self, error: StorageError | None = None) -> None:
        self.error = error
        self.counts = 0

    @property
    def notes(self) -> Notes:
        return self._nothing()

    @property
    def media(self) -> Media:
        return self._nothing()

    @property
    def chats(self) -> Chats:
        return self._nothing()

    @property
    def characters(self) -> Characters:
        return self._nothing()

    @property
    def prompts(self) -> Prompts:
        return self._nothing()

    @property
    def observations(self) -> Observations:
        return self._nothing()

    @property
    def bookmarks(self) -> Bookmarks:
        return self._nothing()

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        self.counts += 1
        if self.error is not None:
            raise self.error
        return Corpus(100, tuple(7 for _ in query.terms))

    def _nothing(self) -> NoReturn:
        raise AssertionError("these sources read no collection")


class HangingLibrary(BareLibrary):
    """Its words are never counted."""

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        self.counts += 1
        await asyncio.Event().wait()
        raise AssertionError


class BareLibraries:
    def __init__(self, library: BareLibrary) -> None:
        self._library = library

    @asynccontextmanager
    async def library(self, context: RequestContext) -> AsyncIterator[Library]:
        yield self._library

    async def close(self) -> None:
        return


class Clock:
    """Time as the test tells it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class LibraryFixture(Struct, frozen=True):
    """Where Ada and Ben ask."""

    aggregator: Aggregator
    contexts: Mapping[str, RequestContext]
    clock: Clock
    session_states: InProcessSessionStates

    async def make_search(self, query: str = "galleon", user: str = "ada", **arguments: Any) -> KnowledgeAnswer:
        return await self.aggregator.search(self.contexts[user], KnowledgeSearch(query=query, **arguments))

    async def ask_in(
        self, connection: str | None, config: Mapping[str, Any], /, user: str = "ada", **arguments: Any
    ) -> KnowledgeAnswer:
        """As a client whose connection is a session, or whose request has preferences."""
        data_root = DataRoot(Path("unused"))
        name = SessionId(connection) if connection is not None else None
        context = build_context(self.contexts[user].principal, data_root, "request", name, config)
        return await self.aggregator.search(context, KnowledgeSearch(query="galleon", **arguments))


def open_libraries(*shelves: Shelf, library: BareLibrary | None = None, **changes: Any) -> LibraryFixture:
    settings, clock = Settings(**changes), Clock()
    session_states = InProcessSessionStates(
        SessionStateLimits(ttl_s=100, seen_max=1_000, queries_max=5, total_max=100_000, user_max=50_000), clock
    )
    aggregator = Aggregator(
        BareLibraries(library or BareLibrary()), shelves, session_states, settings, Breaker(settings, clock)
    )
    contexts = {
        name: build_context(make_principal(name), DataRoot(Path("unused")), "request") for name in ("ada", "ben")
    }
    return LibraryFixture(aggregator, contexts, clock, session_states)


def uris(answer: KnowledgeAnswer) -> list[str]:
    return [item.uri for item in answer.results]
