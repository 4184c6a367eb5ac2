"""Searches the caller's conversations: for one concept by exchange, for several concepts by conversation.

The number of examined messages is bounded; a note reports when the bound was reached.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import NotFound, SourceTimeout
from config.settings import Settings
from server.compat.conversation_memory.arguments import ExchangeRow, MemoryQuery
from server.compat.conversation_memory.observation_search import (
    NOT_SEARCHED,
    MatchingRows,
    has_words,
    is_compared,
    message_query,
    query_notes,
    search_by_mode,
)
from server.compat.conversation_memory.transcript import path_of, project_of, summary_of
from sources.reading.exchanges import last_exchange, message_lines
from sources.records import Conversation, Hit, SemanticStatus
from sources.search.arguments import LIMIT_MAX
from sources.search.snippets import Highlighter
from sources.storage.contract import Chats, Search
from sources.text.chunking import first_sentence, run_text_work, shorten

# An exchange starts at the last message of the person. Agents that call tools send many messages in between.
_MEMORY_EXCHANGE_MAX_MESSAGES = 30

_SUMMARY_MAX_CHARS = 160
_PROJECT_MAX_CHARS = 60
# How many of the nearest messages match a concept, for each row that is requested.
_NEAREST_PER_ROW = 5
_NEAREST_INSTEAD = "No conversation contains all concepts. These conversations are the nearest by meaning."


class _ConceptMatches(Struct, frozen=True):
    search: Search
    best_hits: Mapping[str, Hit]  # of one concept, by conversation
    is_complete: bool  # otherwise other conversations may match too
    semantic: SemanticStatus


class ConversationSearcher:
    def __init__(
        self,
        chats: Chats,
        context: RequestContext,
        settings: Settings,
        query: MemoryQuery,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chats = chats
        self._context = context
        self._settings = settings
        self._query = query
        self._clock = clock
        self._scan_max = settings.fixed.memory_scan_max
        self._conversations: dict[str, Conversation | None] = {}

    async def search_exchanges(self) -> MatchingRows:
        """Returns the exchanges that match a single concept, best first, each once."""
        query = message_query(self._query, self._query.concepts[0], self._context, self._settings)
        notes = query_notes(query)
        if query.search is None or not query.terms:
            return MatchingRows((), 0, notes)
        rows: dict[tuple[str, int], ExchangeRow] = {}
        has_matching_words = False
        pages = _HitPages(self._chats, query.search, self._scan_max)
        highlighter = Highlighter(query.terms)
        while hits := await pages.next():
            for hit in hits:
                if len(rows) == self._query.limit:
                    return MatchingRows(tuple(rows.values()), None, notes, pages.semantic, has_matching_words)
                if not self._query.is_literal and has_words(hit):
                    # The index also finds messages by the words of their date. Those of the text or the sender count.
                    text = f"{hit.sender}: {hit.text}"
                    if not await run_text_work(len(hit.text), highlighter.matches, text):
                        continue
                row = await self._row(hit, hit.score, highlighter, query.snippet_chars)
                if row is not None:
                    rows.setdefault((row.path, row.line_start), row)
                    has_matching_words = has_matching_words or has_words(hit)
        results = self._results(tuple(rows.values()), len(rows), notes, is_complete=pages.is_complete)
        return replace(results, semantic=pages.semantic, has_matching_words=has_matching_words)

    async def search_conversations(self) -> MatchingRows:
        """Returns the conversations that match all concepts, ordered by the average of the best scores."""
        queries = [message_query(self._query, text, self._context, self._settings) for text in self._query.concepts]
        notes = tuple(dict.fromkeys(note for query in queries for note in query_notes(query)))
        searches = [query.search for query in queries if query.search is not None and query.terms]
        if len(searches) < len(queries):
            return MatchingRows((), 0, notes)
        concepts = [await self._match_concept(search) for search in searches]
        matches, is_complete = await self._match_all(concepts)
        if not matches and self._query.ranking == "fused":
            # Mode `both`: nothing has all of the words, so that the meaning decides.
            nearest = [await self._match_concept(replace(search, ranking="meaning")) for search in searches]
            if all(is_compared(concept.semantic) for concept in nearest):
                concepts, notes = nearest, (*notes, _NEAREST_INSTEAD)
                matches, is_complete = await self._match_all(concepts)
        highlighter = Highlighter([term for query in queries for term in query.terms])
        ranked = sorted(matches, key=_average_score, reverse=True)
        rows: list[ExchangeRow] = []
        for hits in ranked[: self._query.limit]:
            best = max(hits, key=lambda hit: hit.score)
            row = await self._row(best, _average_score(hits), highlighter, queries[0].snippet_chars)
            rows += [] if row is None else [row]
        results = self._results(tuple(rows), len(matches), notes, is_complete=is_complete)
        semantic = min((concept.semantic for concept in concepts), key=lambda status: status.coverage or 0.0)
        return replace(results, semantic=semantic)

    async def _match_concept(self, search: Search) -> _ConceptMatches:
        """Of the messages that are compared by meaning, only the nearest match: all are more or less near."""
        nearest_max = min(self._scan_max, _NEAREST_PER_ROW * self._query.limit)
        limit = nearest_max if search.ranking == "meaning" else self._scan_max
        results = await search_by_mode(self._chats.search, replace(search, limit=limit, offset=0))
        best_hits: dict[str, Hit] = {}
        for hit in results.hits:
            best_hits.setdefault(str(hit.conversation_id), hit)
        is_complete = not results.has_more or is_compared(results.semantic)
        return _ConceptMatches(search, best_hits, is_complete, results.semantic)

    async def _match_all(self, concepts: Sequence[_ConceptMatches]) -> tuple[list[Sequence[Hit]], bool]:
        """Returns the hits of each conversation that matches all concepts, and whether these are all conversations.

        A concept that is too common to be examined everywhere is looked up in each conversation that matches the
        others, until the deadline of a search.
        """
        rarest = min(concepts, key=lambda concept: (not concept.is_complete, len(concept.best_hits)))
        matches: list[Sequence[Hit]] = []
        lookups, deadline_s = self._scan_max, self._clock() + self._settings.search_deadline_ms / 1000
        for conversation_id in rarest.best_hits:
            missing = [concept for concept in concepts if conversation_id not in concept.best_hits]
            if any(concept.is_complete for concept in missing):
                continue
            # Each lookup is a search, so that their number is limited as well as their time.
            lookups -= len(missing)
            if lookups < 0:
                return matches, False
            try:
                hits = [await self._hit_in(conversation_id, concept, deadline_s) for concept in concepts]
            except SourceTimeout:
                return matches, False
            if all(hits):
                matches.append([hit for hit in hits if hit is not None])
        return matches, rarest.is_complete

    async def _hit_in(self, conversation_id: str, concept: _ConceptMatches, deadline_s: float) -> Hit | None:
        if conversation_id in concept.best_hits:
            return concept.best_hits[conversation_id]
        remaining_ms = int((deadline_s - self._clock()) * 1000)
        if remaining_ms <= 0:
            raise SourceTimeout("chats", self._settings.search_deadline_ms)
        lookup = replace(concept.search, within=conversation_id, limit=1, offset=0, deadline_ms=remaining_ms)
        results = await search_by_mode(self._chats.search, lookup)
        return results.hits[0] if results.hits else None

    async def _row(self, hit: Hit, score: float, highlighter: Highlighter, snippet_chars: int) -> ExchangeRow | None:
        """Returns None if the conversation or the message was deleted since the search."""
        conversation_id = str(hit.conversation_id)
        if conversation_id not in self._conversations:
            try:
                self._conversations[conversation_id] = await self._chats.get(conversation_id)
            except NotFound:
                self._conversations[conversation_id] = None
        conversation = self._conversations[conversation_id]
        if conversation is None:
            return None
        before = _MEMORY_EXCHANGE_MAX_MESSAGES - 1
        messages = await self._chats.messages_around(conversation.id, hit.message_index or 0, before, 0)
        if not messages or messages[-1].id != hit.message_id:  # deleted since the search
            return None
        exchange = last_exchange(messages)
        summary = shorten(summary_of(conversation), _SUMMARY_MAX_CHARS)

        def build() -> ExchangeRow:
            return ExchangeRow(
                path=path_of(conversation),
                project=shorten(project_of(conversation), _PROJECT_MAX_CHARS),
                date=hit.created_at[:10],
                score=round(score, 2),
                summary=summary or first_sentence(exchange[0].content, _SUMMARY_MAX_CHARS),
                snippet=highlighter.snippet(messages[-1].content, snippet_chars, hit.passage).text,
                line_start=message_lines(exchange[0]).start,
                line_end=message_lines(messages[-1]).end,
            )

        return await run_text_work(len(exchange[0].content) + len(messages[-1].content), build)

    def _results(
        self, rows: tuple[ExchangeRow, ...], total: int, notes: tuple[str, ...], *, is_complete: bool
    ) -> MatchingRows:
        if is_complete:
            return MatchingRows(rows, total, notes)
        # Suggests the filters that the query does not have yet.
        filters = {
            "projects": self._query.projects,
            "after": self._query.time_range.start,
            "before": self._query.time_range.end,
        }
        unused = [name for name, value in filters.items() if not value]
        advice = f"narrow the search by {' or '.join(unused)}" if unused else "use a more specific query"
        return MatchingRows(rows, None, (*notes, f"Not all matches were examined; {advice}."))


class _HitPages:
    """The hits of a search by page, up to a bound. `is_complete` is set once they ended before it."""

    def __init__(self, chats: Chats, search: Search, scan_max: int) -> None:
        self._chats = chats
        self._search = search
        self._scan_max = scan_max
        self._offset = 0
        self.is_complete = False
        self.semantic = NOT_SEARCHED

    async def next(self) -> Sequence[Hit]:
        size = min(LIMIT_MAX, self._scan_max - self._offset)
        if self.is_complete or size <= 0:
            return ()
        results = await search_by_mode(self._chats.search, replace(self._search, limit=size, offset=self._offset))
        self.semantic = results.semantic
        self._offset += size
        self.is_complete = not results.has_more
        return results.hits


def _average_score(hits: Sequence[Hit]) -> float:
    return sum(hit.score for hit in hits) / len(hits)
