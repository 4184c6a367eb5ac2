"""Searches several sources concurrently, renders the hits that are delivered, and reports how each source did. A source
that fails, is late or returns an invalid result loses its own hits and nothing else."""

import asyncio
import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from loguru import logger
from msgspec import UNSET
from msgspec.structs import replace

from aggregator.breaker import Breaker
from aggregator.responses import SourceReport
from auth.context import RequestContext
from config.errors import FlorilegiumError, InvalidParams, SourceTimeout
from sources.items import ResultItem
from sources.query import Term
from sources.source import RankedHit, Source, SourceHits
from sources.storage.contract import Library

# How long a cancelled source gets to release the library.
_CANCEL_GRACE_S = 0.05


class Fanout:
    """The searches of one request, all of which must finish within `deadline_ms`.

    `arguments` holds the search arguments of each source; limit and offset are set for each page, which has `depth`
    hits. `filtered` names the sources for which the caller set filters: if one of them rejects its arguments, that is
    the caller's error.
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
    ) -> None:
        self._context = context
        self._library = library
        self._arguments = arguments
        self._breaker = breaker
        self._filtered = filtered
        self._deadline_ms = deadline_ms
        self._clock = asyncio.get_running_loop().time
        self._due = self._clock() + deadline_ms / 1000
        self._queries: dict[str, Any] = {}
        self.sources = sources
        self.depth = depth
        self.reports: dict[str, SourceReport] = {}

    async def search(self, offsets: Mapping[str, int]) -> Mapping[str, SourceHits]:
        """The next page of each source from its offset on; `reports` says why one is missing."""
        took_ms: dict[str, int] = {}
        tasks = {
            name: asyncio.create_task(self._search_source(name, offset, took_ms))
            for name, offset in offsets.items()
            if not self._is_skipped(name)
        }
        late = await self._wait(list(tasks.values()))
        pages: dict[str, SourceHits] = {}
        for name, task in tasks.items():
            ms = took_ms.get(name, self._deadline_ms)
            if task in late:
                message = f"did not respond within {self._deadline_ms} ms"
                self._report_failure(name, SourceReport(status="timeout", ms=ms, error=message))
            elif task.cancelled():
                self._report_exception(name, asyncio.CancelledError(), ms)
            elif (error := task.exception()) is not None:
                self._report_exception(name, error, ms)
            elif self._accept(name, task.result(), ms):
                pages[name] = task.result()
        return pages

    async def render(self, hits: Sequence[RankedHit], topic: Sequence[Term]) -> Mapping[str, ResultItem]:
        """The result items of hits, by URI. If a source fails to render a hit, its remaining hits are dropped and the
        failure is reported."""
        pending = deque(hits)
        items: dict[str, ResultItem] = {}
        while pending:
            # In a task of its own, so that anything a foreign source raises is a value here.
            task = asyncio.create_task(self._render_pending(pending, topic, items))
            await asyncio.wait([task])
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                failed = pending[0].source
                self._report_exception(failed, error, 0)
                pending = deque(hit for hit in pending if hit.source != failed)
        return items

    async def _render_pending(
        self, pending: deque[RankedHit], topic: Sequence[Term], items: dict[str, ResultItem]
    ) -> None:
        """Moves hits to `items`; if one fails, it is the first of `pending`."""
        while pending:
            hit = pending[0]
            items[hit.uri] = self.sources[hit.source].render_hit(hit, self._queries[hit.source], topic)
            pending.popleft()

    def reject(self, name: str, problem: str) -> None:
        """Reports a source that returned an invalid result."""
        logger.error("source {} returned an invalid search result: {}", name, problem)
        self._report_failure(name, SourceReport(status="error", ms=0, error="returned an invalid result"))

    async def _search_source(self, name: str, offset: int, took_ms: dict[str, int]) -> SourceHits:
        args = replace(self._arguments[name], limit=self.depth, offset=offset)
        started = self._clock()
        try:
            return await self.sources[name].search(self._context, self._library, args)
        finally:
            took_ms[name] = round((self._clock() - started) * 1000)

    async def _wait(self, tasks: Sequence[asyncio.Task[SourceHits]]) -> set[asyncio.Task[SourceHits]]:
        """Waits until all tasks are done or the deadline passes; returns the late ones. They are cancelled, even if
        this call is cancelled itself."""
        late: set[asyncio.Task[SourceHits]] = set()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=max(0.0, self._due - self._clock()))
        finally:
            late.update(task for task in tasks if not task.done())
            for task in late:
                task.cancel()
                task.add_done_callback(_retrieve_exception)
        if late:
            await asyncio.wait(late, timeout=_CANCEL_GRACE_S)
        return late

    def _is_skipped(self, name: str) -> bool:
        wait_s = self._breaker.wait_s(self._context.user_id, name)
        if wait_s <= 0:
            return False
        error = f"skipped after repeated failures; retry in {math.ceil(wait_s)} s"
        self._report(name, SourceReport(status="skipped", ms=0, error=error))
        return True

    def _accept(self, name: str, page: SourceHits, took_ms: int) -> bool:
        problem = _find_problem(name, page, self.depth)
        if problem is not None:
            self.reject(name, problem)
            return False
        self._queries[name] = page.query
        self._breaker.record_success(self._context.user_id, name)
        self._report(name, SourceReport(status="ok", ms=took_ms, read_as=page.read_as or UNSET))
        return True

    def _report_exception(self, name: str, error: BaseException, took_ms: int) -> None:
        """Reports only what a caller may know about an error. An error in the caller's own filters is raised."""
        match error:
            case InvalidParams() if name in self._filtered:
                raise InvalidParams(f"filters.{name}.{error.message}") from error
            case InvalidParams():
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


def _retrieve_exception(task: asyncio.Task[SourceHits]) -> None:
    """Keeps asyncio from logging the exception of a task that is no longer awaited."""
    if not task.cancelled():
        task.exception()


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
