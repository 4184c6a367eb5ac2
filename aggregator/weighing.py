"""A library in which the words of a query are counted once, however many sources ask: they weigh alike in all.

To count them every file is read, so one that hangs would hold all sources up. Nobody waits for a count longer than a
part of the search's time; the sources then weigh words by themselves.
"""

import asyncio

from config.errors import SourceTimeout
from sources.query import ParsedQuery
from sources.storage.contract import Characters, Chats, Corpus, Library, Media, Notes, Prompts

# Of the time of a search; a count takes a few milliseconds.
_SHARE = 0.25


class _Count:
    """A count that is under way, and when it is given up."""

    def __init__(self, task: asyncio.Task[Corpus], due: float) -> None:
        self.task = task
        self.due = due


class WeighedLibrary:
    """One user's library for the time of one search. `close` ends a count that nobody waits for any more."""

    def __init__(self, library: Library, deadline_ms: int) -> None:
        self._library = library
        self._patience_ms = max(1, int(deadline_ms * _SHARE))
        self._clock = asyncio.get_running_loop().time
        self._counts: dict[ParsedQuery, _Count] = {}

    @property
    def notes(self) -> Notes:
        return self._library.notes

    @property
    def media(self) -> Media:
        return self._library.media

    @property
    def chats(self) -> Chats:
        return self._library.chats

    @property
    def characters(self) -> Characters:
        return self._library.characters

    @property
    def prompts(self) -> Prompts:
        return self._library.prompts

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        count = self._counts.get(query)
        if count is None:
            task = asyncio.create_task(self._library.corpus(query, min(deadline_ms, self._patience_ms)))
            count = self._counts[query] = _Count(task, self._clock() + self._patience_ms / 1000)
        # Waited for and not awaited: a source that is cut off must not take the count from the others.
        done, _ = await asyncio.wait({count.task}, timeout=max(0.0, count.due - self._clock()))
        if not done:
            raise SourceTimeout("the count of words", self._patience_ms)
        return count.task.result()

    def close(self) -> None:
        for count in self._counts.values():
            count.task.cancel()
            # An error that no source waited for is nobody's: it is looked at so that it is not reported as lost.
            count.task.add_done_callback(lambda done: done.cancelled() or done.exception())
