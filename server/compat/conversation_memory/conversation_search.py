"""Searches the caller's conversations: for one concept by exchange, for several concepts by conversation.

The number of examined messages is bounded; a note reports when the bound was reached.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, structs

from auth.context import RequestContext
from config.errors import NotFound, SourceTimeout
from config.settings import Settings
from server.compat.conversation_memory.arguments import BAD_ID, ExchangeRow, MemoryQuery, ObservationRow, memory_error
from server.compat.conversation_memory.responses import path_of, project_of, summary_of
from sources.importers.engine.events import imported_observation_id
from sources.query import AllOf, AnyOf, Expression, ParsedQuery, Without, literal_text, parse_literal
from sources.reading.exchanges import last_exchange, message_lines
from sources.records import Conversation, Hit, HitPage, Observation, SemanticStatus
from sources.search.arguments import LIMIT_MAX, SearchArguments, SourceQuery, build_query, read_query
from sources.search.snippets import Highlighter
from sources.storage.contract import Chats, Library, Observations, Search
from sources.text.chunking import first_sentence, run_text_work, shorten

# -- concept queries ---------------------------------------------------------------------------------------------------
# Builds the searches for one concept of a memory query, in observations and in conversations.
#
# In mode `text` a concept is a text to be found as written, and in mode `vector` a meaning. In mode `both` it is a
# query that is compared by its words and its meaning.

# The index also has the messages before each message, which may belong to another exchange.
_MESSAGE_ITSELF = ("own",)
_NO_WORDS = "searched for nothing; the query contains no words"


def message_query(query: MemoryQuery, concept: str, context: RequestContext, settings: Settings) -> SourceQuery:
    """Several words may be in neighbouring messages if the query is for conversations, but not if it is for
    exchanges."""
    return build_query(
        "chats",
        SearchArguments(query=concept, limit=LIMIT_MAX),
        context,
        settings,
        parsed=_parse(query, concept, settings),
        supported_filters=("sender",),
        order="relevance",
        date_from=query.filters.date_from,
        date_to=query.filters.date_to,
        by="message",
        projects=query.filters.projects,
        contains=literal_text(concept) if query.is_literal else None,
        fields=_MESSAGE_ITSELF if query.is_single_concept else (),
        # Of several concepts, all must be there: a message that is merely near to one does not show that.
        ranking="words" if query.ranking == "fused" and not query.is_single_concept else query.ranking,
    )


def query_notes(query: SourceQuery) -> tuple[str, ...]:
    """A query of filters only is not listed, as it has no concept."""
    read_as = query.read_as if query.terms or query.search is None else _NO_WORDS
    return (f"Query interpretation: {read_as}.",) if read_as else ()


def _parse(query: MemoryQuery, concept: str, settings: Settings) -> ParsedQuery:
    if query.is_literal:
        if len(concept) > settings.fixed.query_max_chars:
            expected = f"at most {settings.fixed.query_max_chars} characters in mode text"
            raise memory_error(f"query: expected {expected}, got {len(concept)}")
        return parse_literal(concept)
    # What was searched for instead of a concept could not be reported with it.
    parsed = structs.replace(read_query(concept, settings), relaxed=None)
    if query.ranking == "meaning":
        parsed = structs.replace(parsed, prose=parsed.prose or concept)
    if query.is_single_concept or parsed.has_operators or parsed.expression is None:
        return parsed
    # One of several concepts must match with all of its words, unless its operators say otherwise.
    return structs.replace(parsed, expression=_all_of(parsed.expression), has_operators=True)


def _all_of(expression: Expression) -> Expression:
    match expression:
        case AnyOf(parts=parts):
            return AllOf(parts)
        case Without(keep=keep, drop=drop):
            return Without(_all_of(keep), drop)
        case _:
            return expression


# What is reported if nothing was searched.
NOT_SEARCHED = SemanticStatus("not_applicable")


async def search_by_mode(search: Callable[[Search], Awaitable[HitPage]], request: Search) -> HitPage:
    """Searches by words if only meanings are asked for and they cannot be compared."""
    page = await search(request)
    if request.ranking != "meaning" or is_compared(page.semantic):
        return page
    return structs.replace(await search(structs.replace(request, ranking="words")), semantic=page.semantic)


def is_compared(status: SemanticStatus) -> bool:
    return status.status in ("on", "partial")


def has_words(hit: Hit) -> bool:
    """Whether a hit was found by its words. Without meanings, there is no other way to find it."""
    return hit.lexical is None or hit.lexical > 0


# Rows are labels; layer 2 returns the whole texts.
_TITLE_MAX_CHARS = 160
_SUMMARY_MAX_CHARS = 160
_LABEL_MAX_CHARS = 60


class MatchingRows(Struct, frozen=True):
    rows: tuple[ObservationRow | ExchangeRow, ...]
    total: int | None  # exact, or None
    notes: tuple[str, ...]
    semantic: SemanticStatus = NOT_SEARCHED
    has_matching_words: bool = False  # the rows were not found by their meaning alone


async def search_observations(
    library: Library, context: RequestContext, settings: Settings, query: MemoryQuery
) -> MatchingRows:
    [concept] = query.concepts
    source_query = build_query(
        "observations",
        SearchArguments(query=concept, limit=query.limit),
        context,
        settings,
        parsed=_parse(query, concept, settings),
        contains=literal_text(concept) if query.is_literal else None,
        ranking=query.ranking,
    )
    notes = query_notes(source_query)
    if source_query.search is None:
        return MatchingRows((), 0, notes)
    results = await search_by_mode(
        lambda search: library.observations.search(search, query.filters), source_query.search
    )
    by_id = {row.id: row for row in await library.observations.get_many([str(hit.id) for hit in results.hits])}
    # The paths of the observations' conversations by id, without those that do not exist.
    paths: dict[str, str] = {}
    for conversation_id in {row.conversation_id for row in by_id.values() if row.conversation_id}:
        with suppress(NotFound):
            paths[conversation_id] = path_of(await library.chats.get(conversation_id))
    highlighter = Highlighter(source_query.terms)

    def build() -> tuple[ObservationRow, ...]:
        rows = []
        for hit in results.hits:
            observation = by_id.get(str(hit.id))
            if observation is None:  # deleted since the search
                continue
            # The conclusion of an observation is its subtitle, or else the beginning of its text.
            texts = (observation.subtitle, observation.narrative, *observation.facts, observation.title)
            rows.append(
                ObservationRow(
                    id=observation.id,
                    type=shorten(observation.type, _LABEL_MAX_CHARS),
                    title=shorten(observation.title, _TITLE_MAX_CHARS),
                    path=paths.get(observation.conversation_id or "", ""),
                    project=shorten(observation.project, _LABEL_MAX_CHARS),
                    date=observation.created_at[:10],
                    score=round(hit.score, 2),
                    summary=first_sentence(next(text for text in texts if text.strip()), _SUMMARY_MAX_CHARS),
                    snippet=highlighter.snippet(hit.text, source_query.snippet_chars, hit.passage).text,
                )
            )
        return tuple(rows)

    rows = await run_text_work(sum(len(hit.text) for hit in results.hits), build)
    has_matching_words = any(map(has_words, results.hits))
    return MatchingRows(rows, results.total, notes, results.semantic, has_matching_words)


# -- observation ids ---------------------------------------------------------------------------------------------------
# Finds observations by id. An observation imported from conversation-memory also has the id it had there.


async def find_observations(observations: Observations, ids: Sequence[str]) -> Sequence[Observation]:
    """Returns the observations in the order of the ids, each once. Raises the same error for an unknown id and for one
    of another user."""
    original_ids = {name: imported_observation_id(name) for name in ids if name.isprintable()}
    by_id = {row.id: row for row in await observations.get_many([*ids, *original_ids.values()])}
    found = {name: by_id.get(name) or by_id.get(original_ids.get(name, "")) for name in ids}
    if missing := [name for name, observation in found.items() if observation is None]:
        raise memory_error(BAD_ID, ", ".join(missing))
    return list({observation.id: observation for observation in found.values() if observation is not None}.values())


# An exchange starts at the last message of the person. Agents that call tools send many messages in between.
_MEMORY_EXCHANGE_MAX_MESSAGES = 30

_PROJECT_MAX_CHARS = 60
# How many of the nearest messages match a concept, for each row that is requested.
_NEAREST_PER_ROW = 5
_NEAREST_INSTEAD = "No conversation contains all concepts. These conversations are the nearest by meaning."


class _ConceptMatches(Struct, frozen=True, eq=False):
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
        highlighter, semantic = Highlighter(query.terms), NOT_SEARCHED
        has_matching_words = is_complete = False
        offset = 0
        # The hits are read by page, up to a bound.
        while not is_complete and (size := min(LIMIT_MAX, self._scan_max - offset)) > 0:
            page = await search_by_mode(self._chats.search, structs.replace(query.search, limit=size, offset=offset))
            offset, semantic, is_complete = offset + size, page.semantic, not page.has_more
            for hit in page.hits:
                if len(rows) == self._query.limit:
                    return MatchingRows(tuple(rows.values()), None, notes, semantic, has_matching_words)
                if not self._query.is_literal and has_words(hit):
                    # The index also finds messages by the words of their date. Those of the text or the sender count.
                    text = f"{hit.sender}: {hit.text}"
                    if not await run_text_work(len(hit.text), highlighter.matches, text):
                        continue
                row = await self._row(hit, hit.score, highlighter, query.snippet_chars)
                if row is not None:
                    rows.setdefault((row.path, row.line_start), row)
                    has_matching_words = has_matching_words or has_words(hit)
        results = self._results(tuple(rows.values()), len(rows), notes, is_complete=is_complete)
        return structs.replace(results, semantic=semantic, has_matching_words=has_matching_words)

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
            nearest = [await self._match_concept(structs.replace(search, ranking="meaning")) for search in searches]
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
        return structs.replace(results, semantic=semantic)

    async def _match_concept(self, search: Search) -> _ConceptMatches:
        """Of the messages that are compared by meaning, only the nearest match: all are more or less near."""
        nearest_max = min(self._scan_max, _NEAREST_PER_ROW * self._query.limit)
        limit = nearest_max if search.ranking == "meaning" else self._scan_max
        results = await search_by_mode(self._chats.search, structs.replace(search, limit=limit, offset=0))
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
            hits: list[Hit] = []
            for concept in concepts:
                if concept not in missing:
                    hits.append(concept.best_hits[conversation_id])
                    continue
                remaining_ms = int((deadline_s - self._clock()) * 1000)
                if remaining_ms <= 0:
                    return matches, False
                lookup = structs.replace(
                    concept.search, within=conversation_id, limit=1, offset=0, deadline_ms=remaining_ms
                )
                try:
                    hits += (await search_by_mode(self._chats.search, lookup)).hits[:1]
                except SourceTimeout:
                    return matches, False
            if len(hits) == len(concepts):
                matches.append(hits)
        return matches, rarest.is_complete

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
            "projects": self._query.filters.projects,
            "after": self._query.filters.date_from,
            "before": self._query.filters.date_to,
        }
        unused = [name for name, value in filters.items() if not value]
        advice = f"narrow the search by {' or '.join(unused)}" if unused else "use a more specific query"
        return MatchingRows(rows, None, (*notes, f"Not all matches were examined; {advice}."))


def _average_score(hits: Sequence[Hit]) -> float:
    return sum(hit.score for hit in hits) / len(hits)
