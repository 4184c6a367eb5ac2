"""Fake sources, and an aggregator over them that two users search."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from aggregator.contract import KnowledgeResponse, KnowledgeSearch
from aggregator.fanout import Breaker
from aggregator.search import Aggregator
from auth.context import RequestContext, SessionId, build_context
from config.errors import StorageError
from config.paths import DataRoot, UserId
from sessions.state import InProcessSessionStates, SessionStateLimits
from sources.items import GetResponse, ResultItem, SearchResponse
from sources.query import ParsedQuery, Term
from sources.records import ListPage
from sources.search.arguments import SearchArguments
from sources.source import (
    GetArguments,
    ItemEntry,
    RankedHit,
    SourceHits,
    SourceResource,
    SourceTool,
    hits_from_response,
)
from sources.storage.collections.chats import Chats
from sources.storage.collections.collection import ItemCollection
from sources.storage.collections.items import Agents, Bookmarks, Media, Notes, Observations, Prompts
from sources.storage.collections.library import FollowedFiles
from sources.storage.contract import Corpus, LibrariesState, Library, LibraryUsage
from sources.storage.job_queue import CURRENT_GROUP
from tests.build_settings import build_settings
from tests.server.protocol.dispatcher_fixture import make_principal


class FakeSearch(SearchArguments, frozen=True, kw_only=True):
    colours: tuple[str, ...] = ()
    pages: int | None = None


def result_item(
    source: str,
    number: int | str,
    score: float = 0.5,
    *,
    modified: str | None = "2026-01-01T00:00:00.000Z",
    text: str | None = None,
    item: int | str | None = None,
    version: int = 1,
) -> ResultItem:
    """A result with a unique text unless `text` is given; `item` is the id of the item that it is part of, if any."""
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


class FakeSource:
    """Returns the given items, in the given order or by date, and records the requests it receives."""

    title = "Fake"
    mime_type = "text/plain"
    search_input = FakeSearch
    tools: Sequence[SourceTool] = ()
    resources: Sequence[SourceResource] = ()

    def __init__(self, name: str, items: Sequence[ResultItem] = (), *, knows_total: bool = True) -> None:
        self.name = name
        self.items = list(items)
        self.knows_total = knows_total
        self.requests: list[FakeSearch] = []

    async def search(self, context: RequestContext, library: Library, args: FakeSearch) -> SourceHits:
        self.requests.append(args)
        items = self.items
        if context.config.get("order_by") == "recent":
            by_uri = sorted(items, key=lambda item: item.uri)
            items = sorted(by_uri, key=lambda item: item.last_modified or "", reverse=True)
        end = args.offset + args.limit
        has_more = end < len(items)
        response = SearchResponse(
            results=tuple(items[args.offset : end]),
            has_more=has_more,
            next_offset=end if has_more else None,
            total_estimated=len(items) if self.knows_total else None,
        )
        return hits_from_response(response, args.offset)

    def render_hit(self, hit: RankedHit, query: Any, topic: Sequence[Term]) -> ResultItem:
        item: ResultItem = hit.payload
        return item

    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: GetArguments
    ) -> GetResponse:
        raise NotImplementedError

    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[ItemEntry]:
        return ListPage((), 0)

    async def call_tool(self, context: RequestContext, library: Library, name: str, args: Any) -> Any:
        raise NotImplementedError

    async def read_resource(
        self, context: RequestContext, library: Library, uri: str, variables: Mapping[str, str]
    ) -> str:
        raise NotImplementedError


class FailingSource(FakeSource):
    """Raises the given error after `after` successful searches."""

    def __init__(self, name: str, error: BaseException, items: Sequence[ResultItem] = (), *, after: int = 0) -> None:
        super().__init__(name, items)
        self.error: BaseException | None = error
        self.after = after

    async def search(self, context: RequestContext, library: Library, args: FakeSearch) -> SourceHits:
        page = await super().search(context, library, args)
        if self.error is not None and len(self.requests) > self.after:
            raise self.error
        return page


class HangingSource(FakeSource):
    """Never answers. `started` is set when it is searched, `was_cancelled` when the search is cancelled."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.started = asyncio.Event()
        self.was_cancelled = asyncio.Event()

    async def search(self, context: RequestContext, library: Library, args: FakeSearch) -> SourceHits:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled.set()
        raise AssertionError


class QueueingSource(FakeSource):
    """Has a job that waits until the test sets `turn`, and then answers or hangs."""

    def __init__(self, name: str, items: Sequence[ResultItem] = (), *, hangs: bool = False) -> None:
        super().__init__(name, items)
        self.hangs = hangs
        self.waiting = asyncio.Event()
        self.turn = asyncio.Event()

    async def search(self, context: RequestContext, library: Library, args: FakeSearch) -> SourceHits:
        group = CURRENT_GROUP.get()
        assert group is not None
        group.begin_wait(time.monotonic())
        self.waiting.set()
        await self.turn.wait()
        group.end_wait(time.monotonic())
        if self.hangs:
            await asyncio.Event().wait()
        return await super().search(context, library, args)


class UncancellableSource(FakeSource):
    """Ignores cancellation until the test sets `end`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.end = asyncio.Event()

    async def search(self, context: RequestContext, library: Library, args: FakeSearch) -> SourceHits:
        while not self.end.is_set():
            try:
                await self.end.wait()
            except asyncio.CancelledError:
                continue
        return SourceHits(hits=(), has_more=False, next_offset=None, total_estimated=0)


class InvalidSource(FakeSource):
    """Returns the given value as the result of a search."""

    def __init__(self, name: str, result: Any) -> None:
        super().__init__(name)
        self.result = result

    async def search(self, context: RequestContext, library: Library, args: FakeSearch) -> SourceHits:
        result: SourceHits = self.result
        return result


class UnrenderableSource(FakeSource):
    """Fails to render its hits."""

    def render_hit(self, hit: RankedHit, query: Any, topic: Sequence[Term]) -> ResultItem:
        raise ZeroDivisionError


class FakeLibrary:
    """A library without collections, because fake sources hold their own items. `corpus` works or fails."""

    def __init__(self, error: StorageError | None = None) -> None:
        self.error = error
        self.corpus_calls = 0

    @property
    def notes(self) -> Notes:
        return self._no_collection()

    @property
    def media(self) -> Media:
        return self._no_collection()

    @property
    def chats(self) -> Chats:
        return self._no_collection()

    @property
    def characters(self) -> ItemCollection[Any, Any, int]:
        return self._no_collection()

    def collection(self, source: str) -> ItemCollection[Any, Any, Any]:
        return self._no_collection()

    @property
    def prompts(self) -> Prompts:
        return self._no_collection()

    @property
    def observations(self) -> Observations:
        return self._no_collection()

    @property
    def agents(self) -> Agents:
        return self._no_collection()

    @property
    def bookmarks(self) -> Bookmarks:
        return self._no_collection()

    @property
    def followed_files(self) -> FollowedFiles:
        return self._no_collection()

    async def usage(self) -> LibraryUsage:
        return LibraryUsage(bytes=0, max_bytes=0, items=0, max_items=0)

    async def require_room(self) -> None:
        pass

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        self.corpus_calls += 1
        if self.error is not None:
            raise self.error
        return Corpus(100, tuple(7 for _ in query.terms))

    def _no_collection(self) -> NoReturn:
        raise AssertionError("fake sources read no collection")


class HangingLibrary(FakeLibrary):
    """A library whose `corpus` never returns."""

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        self.corpus_calls += 1
        await asyncio.Event().wait()
        raise AssertionError


class FakeLibraries:
    def __init__(self, library: FakeLibrary) -> None:
        self._library = library

    @asynccontextmanager
    async def library(self, context: RequestContext) -> AsyncIterator[Library]:
        yield self._library

    def require_capacity(self, user_id: UserId) -> None:
        return

    def state(self) -> LibrariesState:
        raise NotImplementedError

    async def stored_bytes(self, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        return dict.fromkeys(user_ids, 0)

    async def remove(self, user_id: UserId) -> None:
        raise NotImplementedError

    async def embed(self, user_id: UserId) -> str | None:
        return None

    async def close(self) -> None:
        return


class FakeClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class AggregatorFixture(Struct, frozen=True):
    """An aggregator that Ada and Ben search."""

    aggregator: Aggregator
    contexts: Mapping[str, RequestContext]
    clock: FakeClock
    session_states: InProcessSessionStates

    async def search(self, query: str = "galleon", user: str = "ada", **arguments: Any) -> KnowledgeResponse:
        return await self.aggregator.search(self.contexts[user], KnowledgeSearch(query=query, **arguments))

    async def search_with(
        self, connection: str | None, config: Mapping[str, Any], /, user: str = "ada", **arguments: Any
    ) -> KnowledgeResponse:
        """Searches as a client whose connection is a session, or whose request has a config."""
        data_root = DataRoot(Path("unused"))
        session = SessionId(connection) if connection is not None else None
        context = build_context(self.contexts[user].principal, data_root, "request", session, config)
        return await self.aggregator.search(context, KnowledgeSearch(query="galleon", **arguments))


def build_aggregator(
    *sources: FakeSource, library: FakeLibrary | None = None, **settings_changes: Any
) -> AggregatorFixture:
    settings, clock = build_settings(**settings_changes), FakeClock()
    session_states = InProcessSessionStates(
        SessionStateLimits(ttl_s=100, seen_max=1_000, queries_max=5, total_max=100_000, user_max=50_000), clock
    )
    aggregator = Aggregator(
        FakeLibraries(library or FakeLibrary()), sources, session_states, settings, Breaker(settings, clock)
    )
    contexts = {
        name: build_context(make_principal(name), DataRoot(Path("unused")), "request") for name in ("ada", "ben")
    }
    return AggregatorFixture(aggregator, contexts, clock, session_states)


def uris(response: KnowledgeResponse) -> list[str]:
    return [item.uri for item in response.results]
