"""Asks several sources at once, lets them show what is delivered, and tells how each fared. One that fails, is late or
answers nonsense costs its own hits and nothing else."""

import asyncio
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from loguru import logger
from msgspec import UNSET, Struct
from msgspec.structs import replace

from aggregator.breaker import Breaker
from aggregator.merge import Candidate
from aggregator.responses import SourceReport
from auth.context import RequestContext
from config.errors import FlorilegiumError, InvalidParams, SourceTimeout
from sources.items import ResultItem
from sources.query import Term
from sources.source import Match, Matches, Source
from sources.storage.contract import Library

# What a source that was cut off has to let go of the library.
_PARTING_S = 0.05


class Inquiry(Struct, frozen=True):
    """A source, and what it is asked: its `search_input`, of which limit and offset are filled in for each window.
    `is_narrowed` if the caller named filters for it, so that a refusal is for the caller to correct."""

    source: Source
    asked: Any
    is_narrowed: bool


class Fanout:
    """The questions of one search, all of which have to be answered within `deadline_ms`."""

    def __init__(
        self,
        context: RequestContext,
        library: Library,
        inquiries: Mapping[str, Inquiry],
        breaker: Breaker,
        *,
        depth: int,
        deadline_ms: int,
    ) -> None:
        self._context = context
        self._library = library
        self._inquiries = inquiries
        self._breaker = breaker
        self._depth = depth
        self._deadline_ms = deadline_ms
        self._clock = asyncio.get_running_loop().time
        self._due = self._clock() + deadline_ms / 1000
        self.reports: dict[str, SourceReport] = {}

    async def ask(self, offsets: Mapping[str, int]) -> Mapping[str, Matches]:
        """The next hits of each source from its offset on; `reports` says why one is missing."""
        took_ms: dict[str, int] = {}
        tasks = {
            name: asyncio.create_task(self._search(self._inquiries[name], offset, took_ms))
            for name, offset in offsets.items()
            if not self._is_passed_by(name)
        }
        late = await self._wait(list(tasks.values()))
        answers: dict[str, Matches] = {}
        for name, task in tasks.items():
            ms = took_ms.get(name, self._deadline_ms)
            if task in late:
                error = f"did not respond within {self._deadline_ms} ms"
                self._failed(name, SourceReport(status="timeout", ms=ms, error=error))
            elif task.cancelled():
                self._excuse(name, asyncio.CancelledError(), ms)
            elif (raised := task.exception()) is not None:
                self._excuse(name, raised, ms)
            elif self._is_sound(name, task.result(), ms):
                answers[name] = task.result()
        return answers

    async def show(self, candidates: Sequence[Candidate], topic: Sequence[Term]) -> Mapping[str, ResultItem]:
        """The hits to deliver as they are told, by URI. What a source cannot show is left out, and the rest of its hits
        with it."""
        waiting = deque(candidates)
        shown: dict[str, ResultItem] = {}
        while waiting:
            # In a task of its own, so that whatever somebody else's code raises is a value here.
            task = asyncio.create_task(_show(waiting, topic, shown))
            await asyncio.wait([task])
            raised = asyncio.CancelledError() if task.cancelled() else task.exception()
            if raised is not None:
                unable = waiting[0].source
                self._excuse(unable, raised, 0)
                waiting = deque(candidate for candidate in waiting if candidate.source != unable)
        return shown

    def refuse(self, name: str, nonsense: str) -> None:
        """A source whose hit cannot be told."""
        logger.error("source {} answered a search with {}", name, nonsense)
        self._failed(name, SourceReport(status="error", ms=0, error="its answer could not be read"))

    async def _search(self, inquiry: Inquiry, offset: int, took_ms: dict[str, int]) -> Matches:
        asked = replace(inquiry.asked, limit=self._depth, offset=offset)
        started = self._clock()
        try:
            return await inquiry.source.search(self._context, self._library, asked)
        finally:
            took_ms[inquiry.source.name] = round((self._clock() - started) * 1000)

    async def _wait(self, tasks: Sequence[asyncio.Task[Matches]]) -> set[asyncio.Task[Matches]]:
        """Until all are done or the time is up; answers those that are late. None runs on after that, not even if we
        are cancelled ourselves."""
        late: set[asyncio.Task[Matches]] = set()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=max(0.0, self._due - self._clock()))
        finally:
            late.update(task for task in tasks if not task.done())
            for task in late:
                task.cancel()
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
        if late:
            await asyncio.wait(late, timeout=_PARTING_S)
        return late

    def _is_passed_by(self, name: str) -> bool:
        wait_s = self._breaker.wait_s(self._context.user_id, name)
        if wait_s <= 0:
            return False
        error = f"passed by after repeated failures; asked again in {math.ceil(wait_s)} s"
        self._report(name, SourceReport(status="skipped", ms=0, error=error))
        return True

    def _is_sound(self, name: str, answer: Matches, took_ms: int) -> bool:
        nonsense = _nonsense(name, answer, self._depth)
        if nonsense is not None:
            self.refuse(name, nonsense)
            return False
        self._breaker.succeeded(self._context.user_id, name)
        self._report(name, SourceReport(status="ok", ms=took_ms, read_as=answer.read_as or UNSET))
        return True

    def _excuse(self, name: str, raised: BaseException, took_ms: int) -> None:
        """Tells of an error what a stranger may know. A filter the caller got wrong is the caller's to correct."""
        match raised:
            case InvalidParams() if self._inquiries[name].is_narrowed:
                raise InvalidParams(f"filters.{name}.{raised.message}") from raised
            case InvalidParams():
                self._report(name, SourceReport(status="error", ms=took_ms, error=raised.message))
            case SourceTimeout():
                self._failed(name, SourceReport(status="timeout", ms=took_ms, error=raised.message))
            case FlorilegiumError():
                self._failed(name, SourceReport(status="error", ms=took_ms, error=raised.message))
            case _:
                logger.opt(exception=raised).error("source {} failed in a search", name)
                self._failed(name, SourceReport(status="error", ms=took_ms, error="failed unexpectedly"))

    def _failed(self, name: str, report: SourceReport) -> None:
        self._breaker.failed(self._context.user_id, name)
        self._report(name, report)

    def _report(self, name: str, report: SourceReport) -> None:
        before = self.reports.get(name)
        self.reports[name] = replace(report, ms=report.ms + before.ms) if before is not None else report


async def _show(waiting: deque[Candidate], topic: Sequence[Term], shown: dict[str, ResultItem]) -> None:
    """Leaves in front the one at which it failed."""
    while waiting:
        candidate = waiting[0]
        shown[candidate.match.uri] = candidate.answer.show(candidate.match, topic)
        waiting.popleft()


def _nonsense(name: str, answer: object, depth: int) -> str | None:
    """What is wrong with an answer, if anything: its source may be somebody else's, and a Struct is not checked when
    it is made. What is shown of a hit is judged when it is."""
    if not isinstance(answer, Matches):
        return f"a {type(answer).__name__}"
    fields: Any = answer
    if not isinstance(fields.found, tuple):
        return f"hits in a {type(fields.found).__name__}"
    if len(fields.found) > depth:
        return f"{len(fields.found)} hits, where {depth} were asked for"
    if not isinstance(fields.next_offset, int | None) or not isinstance(fields.total_estimated, int | None):
        return f"next_offset {fields.next_offset!r} and total_estimated {fields.total_estimated!r}"
    scheme = f"{name}://"
    for match in fields.found:
        if not isinstance(match, Match) or not _is_sound(scheme, match):
            return f"the match {match!r}"
    return None


def _is_sound(scheme: str, match: Any) -> bool:
    """A hundred are looked at in a search, so each kind is named by itself: a union is made anew for every look."""
    return (
        isinstance(match.uri, str)
        and match.uri.startswith(scheme)
        and isinstance(match.id, (str, int))
        and isinstance(match.score, (float, int))
        and 0 <= match.score <= 1
        and (match.last_modified is None or isinstance(match.last_modified, str))
        and (match.version is None or isinstance(match.version, int))
        and _can_be_compared(match.content)
    )


def _can_be_compared(content: object) -> bool:
    try:
        hash(content)
    except TypeError:
        return False
    return True
