"""The MCP tools of conversation-memory. They return Markdown, as their clients expect; JSON is returned as structured
content too. No argument is a file system path.
"""

# About this package: `memory_search` returns short rows, `memory_get_observations` returns observations in full, and
# `memory_read` returns the conversation they come from. `observations_record` stores new observations. Read `tools.py`
# first: it searches, and has the rule when conversations are searched instead of observations. `responses.py` reads
# conversations and renders results.

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from uuid import uuid4

import msgspec
from msgspec import UNSET, Struct, structs

from auth.context import WRITE, RequestContext
from config.errors import InvalidParams, NotFound, SourceTimeout
from config.settings import Settings
from server.compat.conversation_memory import arguments, responses
from server.compat.conversation_memory.arguments import BAD_ID, ExchangeRow, MemoryQuery, ObservationRow, memory_error
from server.compat.conversation_memory.responses import path_of, project_of, summary_of
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool, ToolResult
from sources.drafts import ObservationDraft
from sources.importers.engine.events import imported_observation_id, observation_id
from sources.items import request_defaults, uri_of
from sources.query import AllOf, AnyOf, Expression, ParsedQuery, Without, literal_text, parse_literal
from sources.reading.exchanges import last_exchange, message_lines
from sources.reading.retrieval import RetrievalPlan, plan_retrieval
from sources.records import Conversation, Hit, HitPage, SemanticStatus
from sources.search.arguments import LIMIT_MAX, SearchArguments, SourceQuery, build_query, read_query
from sources.search.snippets import Highlighter
from sources.storage.collections.chats import Chats
from sources.storage.contract import Libraries, Library, Search
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


# -- conversations -----------------------------------------------------------------------------------------------------
# Searched for one concept by exchange, for several concepts by conversation. The number of examined messages is
# bounded; a note reports when the bound was reached.

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


# -- tools -------------------------------------------------------------------------------------------------------------

# If meanings could not be compared, the result says so unless mode `text` was requested.
_EXCHANGES_INSTEAD = "No observations found. These results are exchanges from conversations."
_OBSERVATIONS_ONLY = (
    "Conversations were not searched: the filters types, concepts and files apply to observations only."
)
# The other fields of an entry are stored as they are, under the same names.
_OTHER_IN_STORAGE = frozenset(("conversation_id", "time"))
# Observations in one call: what a model can write in one turn.
_OBSERVATIONS_BATCH_MAX = 50
# Repeating a call without a key records another observation.
_APPENDS = Hints(read_only_hint=False, idempotent_hint=False)


def add_conversation_memory_tools(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    for tool in ConversationMemoryTools(libraries, settings).tools():
        catalog.add_tool(tool)


class ConversationMemoryTools:
    """Handlers of the memory tools, and their declarations."""

    def __init__(self, libraries: Libraries, settings: Settings) -> None:
        self._libraries = libraries
        self._settings = settings

    async def search(self, call: Call, request: arguments.MemorySearch) -> arguments.MemoryResults | ToolResult:
        query = arguments.parse_query(request)
        async with self._libraries.library(call.context) as library:
            kind, found, note = await self._search(library, call.context, query)
        notes = [note, *found.notes] if note else found.notes
        results = arguments.MemoryResults(
            kind=kind,
            results=found.rows,
            total=found.total,
            count=len(found.rows),
            mode=query.mode,
            served_by=query.mode if is_compared(found.semantic) else "text",
            semantic=UNSET if query.is_literal else found.semantic,
            concepts=UNSET if query.is_single_concept else query.concepts,
            note=" ".join(notes) or UNSET,
        )
        return results if request.response_format == "json" else _markdown(responses.render_results(results))

    async def _search(
        self, library: Library, context: RequestContext, query: MemoryQuery
    ) -> tuple[arguments.ResultKind, MatchingRows, str]:
        """Searches observations. If none match, it searches exchanges of conversations instead, with a note that says
        so. Several concepts are searched in conversations, which must match all of them."""
        searcher = ConversationSearcher(library.chats, context, self._settings, query)
        if not query.is_single_concept:
            return "conversations", await searcher.search_conversations(), ""
        observations = await search_observations(library, context, self._settings, query)
        if query.filters.types or query.filters.concepts or query.filters.files:
            return "observations", observations, "" if observations.rows else _OBSERVATIONS_ONLY
        # Observations are always more or less near. In mode `both`, exchanges that contain the words are better.
        if observations.rows and (observations.has_matching_words or query.ranking == "meaning"):
            return "observations", observations, ""
        exchanges = await searcher.search_exchanges()
        if observations.rows and not exchanges.has_matching_words:
            return "observations", observations, ""
        return "exchanges", exchanges, _EXCHANGES_INSTEAD if exchanges.rows else ""

    async def get_observations(self, call: Call, request: arguments.GetObservations) -> ToolResult:
        ids = arguments.parse_ids(request.ids)
        async with self._libraries.library(call.context) as library:
            # In the order of the ids, each once. The error is the same for an unknown id and for one of another user.
            original_ids = {name: imported_observation_id(name) for name in ids if name.isprintable()}
            by_id = {row.id: row for row in await library.observations.get_many([*ids, *original_ids.values()])}
            found = {name: by_id.get(name) or by_id.get(original_ids.get(name, "")) for name in ids}
            if missing := [name for name, observation in found.items() if observation is None]:
                raise memory_error(BAD_ID, ", ".join(missing))
            observations = list(
                {observation.id: observation for observation in found.values() if observation is not None}.values()
            )
        for observation in observations:
            call.context.record_read(uri_of("observations", observation.id))
        chars = sum(len(row.narrative) + sum(map(len, row.facts)) for row in observations)
        return _markdown(await run_text_work(chars, responses.render_observations, observations, self._plan(call)))

    async def read(self, call: Call, request: arguments.ReadConversation) -> ToolResult:
        path, lines = arguments.parse_path(request.path), arguments.parse_lines(request.start_line, request.end_line)
        async with self._libraries.library(call.context) as library:
            transcript = await responses.read_transcript(
                library.chats, path, lines, self._plan(call), self._settings.message_page_max
            )
        call.context.record_read(uri_of("chats", transcript.conversation.id))
        chars = sum(len(message.text) for message in transcript.messages)
        return _markdown(await run_text_work(chars, responses.render_transcript, transcript))

    async def record(self, call: Call, request: arguments.RecordObservations) -> arguments.RecordedObservations:
        """Records all entries or none, as clients send them; only their origin is added. A retry with the same key
        returns what the first call recorded."""
        count, batch_max, key = len(request.observations), _OBSERVATIONS_BATCH_MAX, request.idempotency_key
        if not 1 <= count <= batch_max:
            raise InvalidParams(f"observations: expected 1 to {batch_max}, got {count}")
        async with self._libraries.library(call.context) as library:
            drafts = []
            for index, entry in enumerate(request.observations):
                # With a key the same entry gets the same id; otherwise a retry would be a different request.
                parts: tuple[str, ...] = (uuid4().hex,)
                if key is not None:
                    parts = ("client", key, str(index), msgspec.json.encode(entry).decode())
                fields = {
                    name: getattr(entry, name) for name in entry.__struct_fields__ if name not in _OTHER_IN_STORAGE
                }
                drafts.append(
                    ObservationDraft(
                        uuid=observation_id(*parts),
                        origin="client",
                        conversation_id=await _conversation_id(library.chats, entry, index),
                        created_at=UNSET if entry.time is None else entry.time,
                        **fields,
                    )
                )
            observations = await library.observations.create_many(drafts, idempotency_key=key)
        recorded = tuple(
            arguments.RecordedObservation(id=one.id, title=one.title, created_at=one.created_at) for one in observations
        )
        return arguments.RecordedObservations(observations=recorded, count=len(recorded))

    def _plan(self, call: Call) -> RetrievalPlan:
        """Returns the token budget of the caller."""
        return plan_retrieval(None, request_defaults(call.context.config), self._settings, "full")

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                name="memory_search",
                source="chats",
                title="Search memory",
                description=(
                    "Layer 1 of memory: search what was learned in earlier sessions. Returns short rows, best first; "
                    "get_observations returns them in full. If no observation matches, it returns exchanges of "
                    f"conversations, for read. An array of {arguments.CONCEPTS_MIN} to {arguments.CONCEPTS_MAX} "
                    "concepts finds conversations that match all of them. "
                    'Example: {"query": "authentication", "types": ["decision"], "after": "2025-09-01"}'
                ),
                input=arguments.MemorySearch,
                handler=self.search,
            ),
            Tool(
                name="memory_get_observations",
                source="chats",
                title="Read observations",
                description=(
                    f"Layer 2 of memory: observations in full, 1 to {arguments.IDS_MAX} by their ids from a search, "
                    'with the conversation and lines they come from. Example: {"ids": ["obs-104729003771625"]}'
                ),
                input=arguments.GetObservations,
                handler=self.get_observations,
            ),
            Tool(
                name="memory_read",
                source="chats",
                title="Read a conversation of memory",
                description=(
                    "Layer 3 of memory: a whole conversation, or some of its lines. Conversations are long: read one "
                    "only if the observations do not answer the question. "
                    'Example: {"path": "chats://9b2e", "startLine": 100, "endLine": 200}'
                ),
                input=arguments.ReadConversation,
                handler=self.read,
            ),
            Tool(
                name="observations_record",
                source="chats",
                title="Record observations",
                description=(
                    f"Record what was learned, 1 to {_OBSERVATIONS_BATCH_MAX} observations, so that "
                    "memory_search finds it in later sessions. "
                    'Example: {"observations": [{"type": "decision", "title": "JWT instead of sessions", "facts": '
                    '["Refresh tokens rotate"], "concepts": ["JWT"], "project": "my-api"}], "idempotency_key": "s1-3"}'
                ),
                input=arguments.RecordObservations,
                output=arguments.RecordedObservations,
                scope=WRITE,
                hints=_APPENDS,
                handler=self.record,
            ),
        )


def _markdown(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])


async def _conversation_id(chats: Chats, entry: arguments.ObservationEntry, index: int) -> str | None:
    """Raises the same error for a missing conversation and for one of another user."""
    name = entry.conversation_id
    if name is None:
        return None
    try:
        is_path = "/" in name or name.endswith(".jsonl")
        return (await responses.find_conversation(chats, name) if is_path else await chats.get(name)).id
    except (NotFound, InvalidParams):
        raise InvalidParams(
            f"observations[{index}].conversation_id: expected the id or path of one of your conversations, "
            f"got {name[:80]!r}"
        ) from None
