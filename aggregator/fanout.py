"""Searches several sources concurrently, renders the hits that are delivered, and reports how each source did. A source
that fails, is late or returns an invalid result loses its own hits and nothing else.
"""

import asyncio
import math
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any

from loguru import logger
from msgspec import UNSET, Struct
from msgspec.structs import replace

from aggregator.contract import SourceReport
from aggregator.libraries import split_library, with_library
from auth.context import LibraryAccess, RequestContext
from config.errors import DatabaseUnavailable, FlorilegiumError, InvalidParams, Overloaded, SearchFailed, SourceTimeout
from config.numbers import clamp
from config.paths import UserId
from config.settings import Settings
from config.tracing import span
from sources.items import ResultItem
from sources.library_source import LibrarySource, LongerSnippet, scan_hits
from sources.query import Term
from sources.records import SemanticStatus
from sources.search.arguments import LIMIT_MAX
from sources.source import RankedHit, Source, SourceHits
from sources.storage.contract import Libraries, Library, QueueState
from sources.storage.job_queue import (
    CURRENT_GROUP,
    CallGroup,
    JobGroup,
    JobLane,
    JobQueue,
    QueuedJob,
    charged_to,
    retrieve_exception,
)
from sources.storage.shared_part import permitted_sources
from sources.text.chunking import run_text_work

# Failing sources tracked for all users together, so that users who are gone take no memory.
_BREAKER_ENTRIES_MAX = 10_000

# -- breaker -----------------------------------------------------------------------------------------------------------
# Circuit breaker: skips a source for a while after repeated failures.
#
# Failures are counted per user, because one user's damaged file must not disable a source for everyone.


class _Circuit(Struct):
    failures: int = 0
    open_until: float = 0.0


class Breaker:
    """After the pause the source is tried again; if that fails too, the next pause starts at once."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings_of = cache(settings.of_source)
        self._clock = clock
        # Of sources that failed since their last success, the latest failure last.
        self.circuits: dict[tuple[UserId, str], _Circuit] = {}

    def wait_s(self, user: UserId, source: str) -> float:
        """Seconds until the source may be tried again; 0 if it may be tried now."""
        circuit = self.circuits.get((user, source))
        return max(0.0, circuit.open_until - self._clock()) if circuit is not None else 0.0

    def record_failure(self, user: UserId, source: str) -> None:
        circuit = self.circuits[user, source] = self.circuits.pop((user, source), _Circuit())
        circuit.failures += 1
        if len(self.circuits) > _BREAKER_ENTRIES_MAX:
            del self.circuits[next(iter(self.circuits))]
        settings = self._settings_of(source)
        if circuit.failures >= settings.breaker_failures:
            circuit.open_until = self._clock() + settings.breaker_pause_s

    def open_circuits(self) -> Mapping[str, int]:
        """Returns for how many users each failing source is skipped at the moment."""
        now = self._clock()
        return Counter(
            split_library(source)[0] for (_, source), circuit in self.circuits.items() if circuit.open_until > now
        )


# Results of a default page show twice as much if there is room, the first ones first: they most likely hold the answer.
LONGER_PASSAGE = 2
# How long a cancelled source gets to release the library.
_CANCEL_GRACE_S = 0.05


class Fanout:
    """The searches of one request. Each source has `deadline_ms`, not counting the time its jobs wait for their turn:
    time in a queue does not make a source fail.

    `arguments` holds the search arguments of each source; limit and offset are set for each page, of which the first
    has `depth` results. `filtered` names the sources for which the caller set filters: if one of them rejects its
    arguments, that is the caller's error. With `is_own_deadline` the caller chose a shorter deadline than the server's:
    a source that exceeds it has not failed.

    `others` are contexts in the libraries of others. Each of their sources is a further stream of hits with a key of
    its own, `notes?library=HANDLE`; that of a source in the caller's library is its name. `libraries` opens them, for
    the time that their sources are being read: no lease is held while hits are merged, rendered and sent, or while
    another library is slow. Their jobs count for the caller (`charged_to`), and so do their failures: what one member
    does to a library, another does not notice.
    """

    def __init__(
        self,
        context: RequestContext,
        library: Library,
        sources: Mapping[str, Source],
        arguments: Mapping[str, Any],
        breaker: Breaker,
        *,
        filtered: Collection[str],
        depth: int,
        deadline_ms: int,
        is_own_deadline: bool = False,
        others: Sequence[RequestContext] = (),
        libraries: Libraries | None = None,
        has_own: bool = True,
    ) -> None:
        self._context = context
        self._library = library
        self._libraries = libraries
        self._arguments = arguments
        self._breaker = breaker
        self._filtered = filtered
        self._deadline_ms = deadline_ms
        self._is_own_deadline = is_own_deadline
        self._clock = asyncio.get_running_loop().time
        self._due = self._clock() + deadline_ms / 1000
        call = CallGroup(deadline_ms / 1000)
        self._groups: dict[str, JobGroup] = {}
        own: set[str] = set()
        for name, source in sources.items():
            self._groups[name] = JobGroup(call=call)
            if isinstance(source, LibrarySource):
                own.add(name)
        self._queries: dict[str, Any] = {}
        # The streams of other libraries: in which library each is.
        self.others: dict[str, RequestContext] = {}
        if others or not has_own:
            sources = self._with_others(others, sources, has_own=has_own)
            own.update(self.others)
        self.sources = sources
        # Our own sources build their hits in one place. Third-party sources are never instances of that class, and
        # what they return is checked.
        self.own = own
        self.depth = depth
        self.reports: dict[str, SourceReport] = {}
        # The length of snippets, which is the same in all sources of our own.
        self.snippet_chars = 0
        # Whether each source compared meanings.
        self.semantic: list[tuple[SemanticStatus, int]] = []
        # The least cosine of the hit of each source that is nearest by meaning.
        self.floors: dict[str, float] = {}
        # Whether any source returned a valid page, and one with hits.
        self.has_answer = False
        self.has_hits = False
        # How the sources with hits read the query.
        self.readings: set[str | None] = set()
        # For sources that say when to try them again.
        self._retry_after_s: dict[str, float] = {}
        self._rejections: dict[str, InvalidParams] = {}

    def _with_others(
        self, others: Sequence[RequestContext], sources: Mapping[str, Source], *, has_own: bool
    ) -> Mapping[str, Source]:
        """Returns the sources of all libraries. Those of others have our own sources only: third-party code gets no
        library but the caller's."""
        streams = dict(sources) if has_own else {}
        self._arguments = dict(self._arguments)
        for context in others:
            assert context.library is not None
            permitted = permitted_sources(context)
            call = CallGroup(self._deadline_ms / 1000)
            for name, source in sources.items():
                if isinstance(source, LibrarySource) and (permitted is None or name in permitted):
                    key = with_library(name, context.library.handle)
                    streams[key], self._arguments[key] = source, self._arguments[name]
                    self.others[key], self._groups[key] = context, JobGroup(call=call)
        return streams

    def library_of(self, key: str) -> LibraryAccess | None:
        """The library of a stream, unless it is the caller's own."""
        return self.others[key].library if key in self.others else None

    async def search(self, offsets: Mapping[str, int], depth: int) -> Mapping[str, SourceHits]:
        """The next page of each source from its offset on; `reports` says why one is missing."""
        user_id = self._context.user_id
        took_ms: dict[str, int] = {}
        tasks: dict[str, asyncio.Task[SourceHits]] = {}
        # One for each library of others.
        leases: dict[LibraryAccess | None, _Lease] = {}
        try:
            for name, offset in offsets.items():
                wait_s = self._breaker.wait_s(user_id, name) if (user_id, name) in self._breaker.circuits else 0.0
                if wait_s > 0:
                    self._retry_after_s[name] = wait_s
                    message = f"skipped after repeated failures; retry in {math.ceil(wait_s)} s"
                    self._report(name, SourceReport(status="skipped", ms=0, error=message))
                    continue
                if (other := self.others.get(name)) is None:
                    search = self._search_source(self._context, self._library, name, offset, depth, took_ms)
                else:
                    assert self._libraries is not None
                    if other.library not in leases:
                        leases[other.library] = _Lease(self._libraries, other)
                    search = self._search_other(leases[other.library], name, offset, depth, took_ms)
                tasks[name] = asyncio.create_task(search)
            late = await self._wait(tasks)
        finally:
            for lease in leases.values():
                lease.end()
        pages: dict[str, SourceHits] = {}
        for name, task in tasks.items():
            ms = took_ms.get(name, self._deadline_ms)
            if task in late:
                message = f"did not respond within {self._deadline_ms} ms"
                report = SourceReport(status="timeout", ms=ms, error=message)
                if self._is_own_deadline:
                    self._report(name, report)
                else:
                    self._report_failure(name, report)
            elif (page := self._accept(name, task, depth, ms)) is not None:
                pages[name] = page
        return pages

    async def _wait(self, tasks: Mapping[str, asyncio.Task[SourceHits]]) -> Collection[asyncio.Task[SourceHits]]:
        """Waits until all tasks are done or over their deadline, which moves while their jobs wait for their turn.
        Returns the late ones, which are cancelled, and so are all of them if this call is cancelled itself."""
        late: Collection[asyncio.Task[SourceHits]] = ()
        try:
            while True:
                waited_s = -1.0
                for name, task in tasks.items():
                    if not task.done():
                        waited_s = max(waited_s, self._groups[name].waited_s())
                if waited_s < 0:  # no task is running
                    break
                left_s = self._due + waited_s - self._clock()
                # At least one pass of the event loop, so that a busy one does not make every source late.
                await asyncio.wait(tasks.values(), timeout=max(0.0, left_s))
                if left_s <= 0:
                    late = {task for task in tasks.values() if not task.done()}
                    break
        except BaseException:
            # The caller gets this exception, so no task is awaited again, not even one that is done.
            late = tasks.values()
            raise
        finally:
            for task in late:
                task.cancel()
                task.add_done_callback(retrieve_exception)
        if late:
            await asyncio.wait(late, timeout=_CANCEL_GRACE_S)
        for task in tasks.values():
            # A rejected filter ends the search before the next task is looked at: asyncio would log its exception.
            if task.done() and not task.cancelled():
                task.exception()
        return late

    def _labelled(self, key: str, page: SourceHits) -> SourceHits:
        """The hits of another library, under their URIs there. The rank of the engine depends on all of its rows, so
        that it is not shown to someone who may read only some of them."""
        access = self.others[key].library
        assert access is not None
        changes: dict[str, Any] = {"stream": key} if access.rule is None else {"stream": key, "bm25": None}
        hits = [replace(hit, uri=with_library(hit.uri, access.handle), **changes) for hit in page.hits]
        return replace(page, hits=tuple(hits))

    async def render(
        self,
        hits: Sequence[RankedHit],
        topic: Sequence[Term],
        parts: Sequence[RankedHit] = (),
        longer: dict[str, LongerSnippet] | None = None,
    ) -> Mapping[str, ResultItem]:
        """The result items of hits, and of further hits of the same items, by URI. If a source fails to render a hit,
        its remaining hits are dropped and the failure is reported. `longer` gets longer snippets of the hits of our own
        sources."""
        # Each with the key of its source, and the query that it is rendered with.
        pending: deque[tuple[RankedHit, str, Any]] = deque()
        for hit in hits:
            key = hit.stream or hit.source
            pending.append((hit, key, self._queries[key]))
        for hit in parts:
            key = hit.stream or hit.source
            query = self._queries[key]
            pending.append((hit, key, replace(query, is_further=True) if key in self.own else query))
        items: dict[str, ResultItem] = {}

        def render_pending() -> None:
            """Moves hits to `items`; if one fails, it is the first of `pending`. All in one call, because switching to
            a thread takes as long as rendering a hit."""
            scan_hits(library_hits, topic)
            while pending:
                hit, key, query = pending[0]
                source: Any = self.sources[key]
                item = items[hit.uri] = source.render_hit(hit, query, topic)
                if longer is not None and key in self.own and not query.is_further:
                    chars = self.snippet_chars * LONGER_PASSAGE
                    longer[hit.uri] = source.longer_snippet(hit, query, topic, item, chars)
                pending.popleft()

        while pending:
            text_chars = 0
            library_hits: list[tuple[RankedHit, Any]] = []
            for hit, key, query in pending:
                if key in self.own:
                    text_chars += hit.payload.text_chars
                    library_hits.append((hit, query))
                else:
                    text_chars += hit.text_chars
            # In a task of its own, so that anything a source raises is a value here.
            task = asyncio.create_task(run_text_work(text_chars, render_pending))
            await asyncio.wait([task])
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                failed = pending[0][1]
                self._report_exception(failed, error, 0)
                pending = deque(entry for entry in pending if entry[1] != failed)
        return items

    def failure(self) -> SearchFailed | InvalidParams:
        """The error of a search in which no source answered. If all of them rejected the arguments, that is the
        caller's."""
        if self._rejections.keys() == self.reports.keys():
            return next(iter(self._rejections.values()))
        reasons = {name: report.error or report.status for name, report in self.reports.items()}
        return SearchFailed(reasons, min(self._retry_after_s.get(name, 1.0) for name in self.reports))

    def reject(self, name: str, problem: str) -> None:
        """Reports a source that returned an invalid result."""
        logger.error("source {} returned an invalid search result: {}", name, problem)
        self._report_failure(name, SourceReport(status="error", ms=0, error="returned an invalid result"))

    async def _search_source(
        self, context: RequestContext, library: Library, name: str, offset: int, depth: int, took_ms: dict[str, int]
    ) -> SourceHits:
        source: Any = self.sources[name]
        if name in self.own:
            depth = min(LIMIT_MAX, depth * source.hits_per_result)
        args = replace(self._arguments[name], limit=depth, offset=offset)
        started = self._clock()
        try:
            CURRENT_GROUP.set(self._groups[name])
            with span(f"search {name}", {"florilegium.source": name}):
                page: SourceHits = await source.search(context, library, args)
                return page
        finally:
            took_ms[name] = round((self._clock() - started) * 1000)

    async def _search_other(
        self, lease: "_Lease", key: str, offset: int, depth: int, took_ms: dict[str, int]
    ) -> SourceHits:
        with charged_to(self._context.user_id):
            async with lease as library:
                return await self._search_source(self.others[key], library, key, offset, depth, took_ms)

    def _accept(self, name: str, task: asyncio.Task[SourceHits], depth: int, ms: int) -> SourceHits | None:
        """Returns the page of a source that responded, or reports its failure."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._report_exception(name, error, ms)
            return None
        page = task.result()
        if name in self.own:
            self.snippet_chars = page.query.snippet_chars
            if page.floor is not None:
                self.floors[name] = page.floor
        elif (problem := _find_problem(name, page, depth)) is not None:
            self.reject(name, problem)
            return None
        self._queries[name] = page.query
        if page.semantic is not None:
            self.semantic.append((page.semantic, page.texts))
        self.has_answer = True
        if page.hits:
            self.has_hits = True
            self.readings.add(page.read_as)
        self._breaker.circuits.pop((self._context.user_id, name), None)
        self._report(name, SourceReport(status="ok", ms=ms, read_as=page.read_as or UNSET))
        return page if name not in self.others else self._labelled(name, page)

    def _report_exception(self, name: str, error: BaseException, took_ms: int) -> None:
        """Reports only what a caller may know about an error. An error in the caller's own filters is raised."""
        match error:
            case InvalidParams() if (source := split_library(name)[0]) in self._filtered:
                raise InvalidParams(f"filters.{source}.{error.message}") from error
            case InvalidParams():
                self._rejections[name] = error
                self._report(name, SourceReport(status="error", ms=took_ms, error=error.message))
            case Overloaded():
                self._retry_after_s[name] = error.retry_after_s
                self._report(name, SourceReport(status="skipped", ms=took_ms, error=error.message))
            case DatabaseUnavailable():  # not the fault of the source, which works again as soon as the server does
                self._report(name, SourceReport(status="error", ms=took_ms, error=error.message))
            case SourceTimeout():
                self._report_failure(name, SourceReport(status="timeout", ms=took_ms, error=error.message))
            case FlorilegiumError():
                self._report_failure(name, SourceReport(status="error", ms=took_ms, error=error.message))
            case _:
                logger.opt(exception=error).error("source {} failed in a search", name)
                self._report_failure(name, SourceReport(status="error", ms=took_ms, error="failed unexpectedly"))

    def _report_failure(self, name: str, report: SourceReport) -> None:
        self._breaker.record_failure(self._context.user_id, name)
        self._report(name, report)

    def _report(self, name: str, report: SourceReport) -> None:
        """A later report replaces an earlier one; their times add up."""
        before = self.reports.get(name)
        self.reports[name] = replace(report, ms=report.ms + before.ms) if before is not None else report


class _Lease:
    """A library of someone else while its sources are read. The first of them opens it, and it is closed after the last
    one, all in one task: a lease begins and ends in the same context."""

    def __init__(self, libraries: Libraries, context: RequestContext) -> None:
        self._opened: asyncio.Future[Library] = asyncio.get_running_loop().create_future()
        self._opened.add_done_callback(retrieve_exception)
        self._unused = asyncio.Event()
        self._users = 0
        self._task = asyncio.create_task(self._hold(libraries, context))

    async def _hold(self, libraries: Libraries, context: RequestContext) -> None:
        try:
            async with libraries.library(context) as library:
                self._opened.set_result(library)
                await self._unused.wait()
        except FlorilegiumError as error:
            self._opened.set_exception(error)
        finally:
            self._opened.cancel()

    async def __aenter__(self) -> Library:
        self._users += 1
        try:
            # Without the shield, one source that is cancelled would take the library from the others.
            return await asyncio.shield(self._opened)
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_error: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._unused.set()

    def end(self) -> None:
        """Called after all sources have ended, or do not end in time: then they still have the library."""
        if not self._opened.done():
            self._task.cancel()
        elif not self._users:
            self._unused.set()


def _find_problem(name: str, page: object, depth: int) -> str | None:
    """Describes what is wrong with the result of a search, if anything. A source may be third-party code, and a Struct
    does not check its fields; what `render_hit` returns is checked later."""
    if not isinstance(page, SourceHits):
        return f"expected SourceHits, got {type(page).__name__}"
    fields: Any = page
    if not isinstance(fields.hits, tuple):
        return f"hits: expected a tuple, got {type(fields.hits).__name__}"
    if len(fields.hits) > depth:
        return f"hits: expected at most {depth}, got {len(fields.hits)}"
    if not isinstance(fields.next_offset, int | None) or not isinstance(fields.total_estimated, int | None):
        return f"next_offset {fields.next_offset!r}, total_estimated {fields.total_estimated!r}"
    if not isinstance(fields.semantic, SemanticStatus | None) or not isinstance(fields.texts, int):
        return f"semantic {fields.semantic!r}, texts {fields.texts!r}"
    scheme = f"{name}://"
    for hit in fields.hits:
        if not isinstance(hit, RankedHit) or not _is_valid(name, scheme, hit):
            return f"hit {hit!r}"
    return None


def _is_valid(name: str, scheme: str, hit: Any) -> bool:
    """Called for about a hundred hits per search, so it uses tuples of types: `str | int` builds a union each time."""
    return (
        hit.source == name
        and isinstance(hit.uri, str)
        and hit.uri.startswith(scheme)
        and isinstance(hit.id, (str, int))
        and isinstance(hit.rank, int)
        and isinstance(hit.score, (float, int))
        and 0 <= hit.score <= 1
        and (hit.last_modified is None or isinstance(hit.last_modified, str))
        and (hit.version is None or isinstance(hit.version, int))
        and _is_hashable(hit.content_key)
    )


def _is_hashable(key: object) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


# -- search queue ------------------------------------------------------------------------------------------------------
# The queue of searches over all sources. Only a few run at the same time, and users take fair turns.
#
# A search that waits has done no work yet, so that many of them cost little, and one that is refused costs nothing.

# One more than there are job slots: it keeps them busy while the event loop merges and renders the hits of another
# search. With more, no search would be answered earlier, and a user who goes ahead would share the processor with more.
_SEARCHES_BEYOND_CORES = 1


class SearchQueue:
    def __init__(self, settings: Settings) -> None:
        self._queue = JobQueue(settings.search_running_max or (os.cpu_count() or 1) + _SEARCHES_BEYOND_CORES)
        self._wait_max_s = settings.fixed.library_wait_max_ms / 1000

    def state(self) -> QueueState:
        return self._queue.state()

    @asynccontextmanager
    async def turn(self, user_id: UserId, wait_max_ms: int | None) -> AsyncIterator[None]:
        """Waits for the user's turn, which lasts for the block. Raises Overloaded at once if that is expected to take
        longer than the setting allows, or longer than `wait_max_ms`."""
        wait_max_s = self._wait_max_s if wait_max_ms is None else clamp(wait_max_ms / 1000, 0, self._wait_max_s)
        wait_s = self._queue.expected_wait_s(user_id, 1)
        if wait_s > wait_max_s:
            # With a deadline of its own, the call says nothing about others.
            raise Overloaded.until_served(wait_s - wait_max_s, is_repeatable=wait_s > self._wait_max_s)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = QueuedJob(user_id, JobLane(), None, partial(_begin, started))
        self._queue.add(job)
        try:
            await started
            yield
        finally:
            if job.started_at is not None:
                job.cost_s = time.monotonic() - job.started_at
                self._queue.finish(job)
            self._queue.leave(job)


def _begin(started: asyncio.Future[None]) -> None:
    """The caller may have been cancelled a moment ago."""
    if not started.done():
        started.set_result(None)
