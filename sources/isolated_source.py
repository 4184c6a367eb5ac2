"""Wraps a third-party source so that a defect in it affects only that source.

Its code runs on a thread of its own (`sources.source_thread`); the library it receives hands every call back to the
server's event loop. What it declares is read once, when it is loaded, and the lists it returns are checked.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import SourceTimeout, StorageError
from config.settings import Settings
from sources.items import GetResponse, ResultItem
from sources.query import Term
from sources.records import ListPage
from sources.source import GetArguments, ItemEntry, RankedHit, Source, SourceHits
from sources.source_thread import SourceThread
from sources.storage.contract import Library
from sources.text.text_work import SHORT_CHARS


class IsolatedSource:
    """Implements `Source` by calling another one on its own thread."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self._source = source
        self._thread = SourceThread(source.name)
        self._deadline_ms = settings.fanout_deadline_ms
        self.name = source.name
        self.title = source.title
        self.mime_type = source.mime_type
        self.tools = tuple(source.tools)
        self.resources = tuple(source.resources)
        self.search_input = source.search_input

    async def search(self, context: RequestContext, library: Library, args: Any) -> SourceHits:
        page = await self._run(library, lambda remote: self._source.search(context, remote, args))
        marked: SourceHits = _rendered_off_loop(page)
        return marked

    def render_hit(self, hit: RankedHit, query: Any, topic: Sequence[Term]) -> ResultItem:
        timeout_s = self._deadline_ms / 1000
        return self._thread.run_function(self._source.render_hit, hit, query, topic, timeout_s=timeout_s)

    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: GetArguments
    ) -> GetResponse:
        response: GetResponse = await self._run(
            library, lambda remote: self._source.get(context, remote, item_id, args)
        )
        return response

    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[ItemEntry]:
        """Has a deadline of its own, because a list has the items of all sources."""
        try:
            async with asyncio.timeout(self._deadline_ms / 1000):
                page = await self._run(library, lambda remote: self._source.list_items(context, remote, limit, offset))
        except TimeoutError as error:
            raise SourceTimeout(self.name, self._deadline_ms) from error
        problem = _find_list_problem(self.name, page, limit)
        if problem is not None:
            raise StorageError(f"{self.name} returned an invalid list: {problem}")
        valid: ListPage[ItemEntry] = page
        return valid

    async def call_tool(self, context: RequestContext, library: Library, name: str, args: Any) -> Any:
        return await self._run(library, lambda remote: self._source.call_tool(context, remote, name, args))

    async def read_resource(
        self, context: RequestContext, library: Library, uri: str, variables: Mapping[str, str]
    ) -> str:
        text = await self._run(library, lambda remote: self._source.read_resource(context, remote, uri, variables))
        if not isinstance(text, str):
            raise StorageError(f"{self.name} returned an invalid resource: expected text, got {type(text).__name__}")
        return text

    async def _run(self, library: Library, work: Callable[[Any], Awaitable[Any]]) -> Any:
        remote = _RemoteObject(library, asyncio.get_running_loop())
        return await self._thread.run(lambda: work(remote))


class _RemoteObject:
    """A library, or one of its collections, whose methods run on the server's event loop."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not inspect.isroutine(value):
            return _RemoteObject(value, self._loop)

        async def call(*args: Any, **options: Any) -> Any:
            async def run() -> Any:
                return await value(*args, **options)

            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._loop))

        return call


def _rendered_off_loop(page: Any) -> Any:
    """Marks the hits as long, so that they are rendered outside the event loop. The aggregator checks the page."""
    if not isinstance(page, SourceHits) or not isinstance(page.hits, tuple):
        return page
    hits: tuple[Any, ...] = page.hits
    return replace(
        page,
        hits=tuple(replace(hit, text_chars=SHORT_CHARS + 1) if isinstance(hit, RankedHit) else hit for hit in hits),
    )


def _find_list_problem(name: str, page: Any, limit: int) -> str | None:
    """Describes what is wrong with a list, if anything. A Struct does not check its fields."""
    if not isinstance(page, ListPage):
        return f"expected ListPage, got {type(page).__name__}"
    rows: Any = page.rows
    if not isinstance(rows, tuple | list) or len(rows) > limit:
        return f"expected at most {limit} rows"
    if not isinstance(page.total, int):
        return f"total: expected a number, got {page.total!r:.40}"
    scheme = f"{name}://"
    return next((f"row {row!r:.80}" for row in rows if not _is_entry(scheme, row)), None)


def _is_entry(scheme: str, row: Any) -> bool:
    if not isinstance(row, ItemEntry):
        return False
    fields: Any = row
    return (
        isinstance(fields.id, str | int)
        and isinstance(fields.uri, str)
        and fields.uri.startswith(scheme)
        and isinstance(fields.title, str | None)
        and isinstance(fields.last_modified, str | None)
    )
