"""Wraps a third-party source so that a defect in it affects only that source.

Its code runs on a thread of its own (`sources.isolated_source`); the library it receives hands every call back to the
server's event loop. What it declares is read once, when it is loaded, and the lists it returns are checked.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from loguru import logger
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import SourceTimeout, StorageError, Unavailable
from config.settings import Settings
from sources.items import GetResponse, ResultItem
from sources.query import Term
from sources.records import ListPage
from sources.source import GetArguments, ItemEntry, RankedHit, Source, SourceHits
from sources.storage.contract import Library
from sources.text.chunking import SHORT_CHARS

# -- source thread -----------------------------------------------------------------------------------------------------
# A thread with an event loop of its own for the code of a third-party source.
#
# Code that blocks, raises SystemExit or never returns then holds up only the calls of its own source. A thread that no
# longer responds is left alone and replaced.

T = TypeVar("T")

# Threads of one source that may be blocked before it is refused. Each of them exists until its code returns.
_BLOCKED_MAX = 2
# After which a client is told to try again.
_RETRY_S = 10.0
# How long a thread may take to react before it counts as blocked. A busy one reacts within milliseconds.
_RESPONSE_S = 0.5


class SourceExited(Exception):
    """A source tried to end the process or to cancel its caller."""


class _LoopThread:
    """One thread. It is blocked if it has not reacted to a probe for a while."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._probed_at: float | None = None
        self._is_replaced = False
        threading.Thread(target=self._run, name=f"source-{name}", daemon=True).start()

    @property
    def is_blocked(self) -> bool:
        probed_at = self._probed_at
        return probed_at is not None and time.monotonic() - probed_at > _RESPONSE_S

    def probe(self) -> None:
        self._probed_at = self._probed_at or time.monotonic()
        self.loop.call_soon_threadsafe(self._respond)

    def replace(self) -> None:
        """Ends the thread as soon as it is no longer blocked."""
        self._is_replaced = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _respond(self) -> None:
        self._probed_at = None

    def _run(self) -> None:
        while not self._is_replaced:
            try:
                self.loop.run_forever()
            except BaseException as error:  # a task that the source has started can raise SystemExit
                logger.opt(exception=error).error("a task of a third-party source failed")


class SourceThread:
    """Runs the calls of one source, each on the current thread of the source."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._current: _LoopThread | None = None
        self._blocked: list[_LoopThread] = []

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Awaits `work()` on the thread. Cancelling the caller returns at once, whatever the source does."""
        thread = self._require_thread()
        future = asyncio.run_coroutine_threadsafe(_guard(work), thread.loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # Usually a deadline. Whether the thread is merely slow or blocked is known at the next call.
            thread.probe()
            raise

    def run_function(self, function: Callable[..., T], *args: Any, timeout_s: float) -> T:
        """Calls the function on the thread and waits for it, so it must not be called on an event loop."""

        async def call() -> T:
            return function(*args)

        thread = self._require_thread()
        try:
            return asyncio.run_coroutine_threadsafe(_guard(call), thread.loop).result(timeout_s)
        except TimeoutError:
            thread.probe()
            raise

    def _require_thread(self) -> _LoopThread:
        with self._lock:
            if self._current is not None and self._current.is_blocked:
                logger.warning("the source {} blocks its thread, which is replaced", self._name)
                self._current.replace()
                self._blocked.append(self._current)
                self._current = None
            self._blocked = [thread for thread in self._blocked if thread.is_blocked]
            if self._current is None:
                if len(self._blocked) >= _BLOCKED_MAX:
                    raise Unavailable(f"{self._name} does not respond", _RETRY_S)
                self._current = _LoopThread(self._name)
            return self._current


async def _guard(work: Callable[[], Awaitable[T]]) -> T:
    """Turns attempts to end the process or the caller into ordinary exceptions."""
    try:
        return await work()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise SourceExited("the source cancelled its caller") from error
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise SourceExited(f"the source raised {type(error).__name__}") from error


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
        page: Any = await self._run(library, lambda remote: self._source.search(context, remote, args))
        # Marked as long, hits are rendered outside the event loop, which `render_hit` would block. The aggregator
        # checks the page.
        if isinstance(page, SourceHits) and isinstance(page.hits, tuple):
            hits: tuple[Any, ...] = page.hits
            long = [replace(hit, text_chars=SHORT_CHARS + 1) if isinstance(hit, RankedHit) else hit for hit in hits]
            page = replace(page, hits=tuple(long))
        checked_later: SourceHits = page
        return checked_later

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
        remote = _RemoteLibrary(library, asyncio.get_running_loop())
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


class _RemoteLibrary(_RemoteObject):
    def collection(self, source: str) -> _RemoteObject:
        return _RemoteObject(self._target.collection(source), self._loop)


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
