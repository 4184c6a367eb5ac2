"""What the caller's conversations say on a concept, exchange by exchange; or on several, conversation by conversation.

Messages are found by their words, as everywhere. How many are looked through is bounded, and an answer that was cut off
by the bound says so.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import NotFound, SourceTimeout
from config.settings import Settings
from server.compat.conversation_memory.archive import path_of, project_of, summary_of
from server.compat.conversation_memory.questions import Recall
from server.compat.conversation_memory.rows import ExchangeRow
from sources.query import AllOf, AnyOf, Expression, ParsedQuery, Without
from sources.reading.exchanges import exchange_until, lines_of
from sources.records import Conversation, Hit
from sources.search.arguments import LIMIT_MAX, Narrowing, Question, SearchArguments, read_query, read_question
from sources.search.snippets import Highlighter
from sources.storage.contract import Chats, Search
from sources.text.excerpts import first_sentence, shorten

_SUMMARY_MAX_CHARS = 160
_PROJECT_MAX_CHARS = 60
_CUT = "There are more matches than were looked through; narrow the search by projects, after or before."


class Rows(Struct, frozen=True):
    """`total` is exact or absent."""

    rows: tuple[ExchangeRow, ...]
    total: int | None
    notes: tuple[str, ...]


class _Concept(Struct, frozen=True):
    """Where one concept was found: the best hit of each conversation. What is not here may still be somewhere, unless
    all hits were seen."""

    search: Search
    best: Mapping[str, Hit]
    is_whole: bool


class ChatSearch:
    def __init__(
        self,
        chats: Chats,
        context: RequestContext,
        settings: Settings,
        asked: Recall,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chats = chats
        self._context = context
        self._settings = settings
        self._asked = asked
        self._clock = clock
        self._projects = frozenset(name.strip().casefold() for name in asked.projects)
        self._examined_max = settings.memory_scan_max
        self._known: dict[str, Conversation | None] = {}

    # -- one concept ---------------------------------------------------------------------------------------------------

    async def exchanges(self) -> Rows:
        """Best first, each once, however many of its messages match."""
        question = self._question(self._asked.concepts[0], read_query(self._asked.concepts[0], self._settings))
        notes = _told(question)
        if question.search is None:
            return Rows((), 0, notes)
        rows: dict[tuple[str, int], ExchangeRow] = {}
        pages = _Pages(self._chats, question.search, self._examined_max)
        highlighter = Highlighter(question.terms)
        while hits := await pages.next():
            for hit in hits:
                if len(rows) == self._asked.limit:
                    return Rows(tuple(rows.values()), None, notes)
                if not _says_it_itself(hit, highlighter):
                    continue
                row = await self._row(hit, hit.score, highlighter, question.snippet_chars)
                if row is not None:
                    rows.setdefault((row.path, row.line_start), row)
        return _rows(tuple(rows.values()), len(rows), notes, is_whole=pages.is_whole)

    # -- several concepts ----------------------------------------------------------------------------------------------

    async def conversations(self) -> Rows:
        """Those that hold all concepts, by the average of the best scores."""
        texts = self._asked.concepts
        questions = [self._question(text, requiring_all(read_query(text, self._settings))) for text in texts]
        notes = tuple(dict.fromkeys(note for question in questions for note in _told(question)))
        searches = [question.search for question in questions if question.search is not None]
        if len(searches) < len(questions):
            return Rows((), 0, notes)
        concepts = [await self._look_for(search) for search in searches]
        found, is_whole = await self._holding_all(concepts)
        highlighter = Highlighter([term for question in questions for term in question.terms])
        ranked = sorted(found, key=_average, reverse=True)
        rows = [
            row
            for hits in (ranked if self._projects else ranked[: self._asked.limit])
            if (row := await self._row(_best(hits), _average(hits), highlighter, questions[0].snippet_chars))
        ]
        total = len(rows) if self._projects else len(found)
        shown = tuple(rows[: self._asked.limit])
        return _rows(shown, total, notes, is_whole=is_whole)

    async def _look_for(self, search: Search) -> _Concept:
        found = await self._chats.search(replace(search, limit=self._examined_max, offset=0))
        best: dict[str, Hit] = {}
        for hit in found.hits:
            best.setdefault(str(hit.conversation_id), hit)
        return _Concept(search, best, is_whole=not found.has_more)

    async def _holding_all(self, concepts: Sequence[_Concept]) -> tuple[list[Sequence[Hit]], bool]:
        """The hits of each conversation that holds all, and whether no other can. A concept too common to be seen
        everywhere is looked up in each conversation that holds the others, for as long as a search may take."""
        rarest = min(concepts, key=lambda concept: (not concept.is_whole, len(concept.best)))
        found: list[Sequence[Hit]] = []
        lookups, due_s = self._examined_max, self._clock() + self._settings.search_deadline_ms / 1000
        for conversation in rarest.best:
            open_ones = [concept for concept in concepts if conversation not in concept.best]
            if any(concept.is_whole for concept in open_ones):
                continue
            lookups -= len(open_ones)
            if lookups < 0:
                return found, False
            try:
                hits = [await self._hit_in(conversation, concept, due_s) for concept in concepts]
            except SourceTimeout:
                return found, False
            if all(hits):
                found.append([hit for hit in hits if hit is not None])
        return found, rarest.is_whole

    async def _hit_in(self, conversation: str, concept: _Concept, due_s: float) -> Hit | None:
        if conversation in concept.best:
            return concept.best[conversation]
        left_ms = int((due_s - self._clock()) * 1000)
        if left_ms <= 0:
            raise SourceTimeout("chats", self._settings.search_deadline_ms)
        lookup = replace(concept.search, within=conversation, limit=1, offset=0, deadline_ms=left_ms)
        found = await self._chats.search(lookup)
        return found.hits[0] if found.hits else None

    # -- both ----------------------------------------------------------------------------------------------------------

    def _question(self, text: str, query: ParsedQuery) -> Question:
        period = self._asked.period
        narrowing = Narrowing(
            obeys=frozenset(("sender",)), by="message", date_from=period.start, date_to=period.end, order="relevance"
        )
        arguments = SearchArguments(query=text, limit=LIMIT_MAX)
        return read_question("chats", arguments, query, self._context, self._settings, narrowing)

    async def _row(self, hit: Hit, score: float, highlighter: Highlighter, snippet_chars: int) -> ExchangeRow | None:
        """Nothing for what is of another project, or was deleted a moment ago."""
        conversation = await self._conversation(str(hit.conversation_id))
        if conversation is None or not self._is_wanted(conversation):
            return None
        before = self._settings.memory_exchange_max_messages - 1
        messages = await self._chats.messages_around(conversation.id, hit.message_index or 0, before, 0)
        if not messages or messages[-1].id != hit.message_id:
            return None
        exchange = exchange_until(messages)
        said = first_sentence(exchange[0].content, _SUMMARY_MAX_CHARS)
        return ExchangeRow(
            path=path_of(conversation),
            project=shorten(project_of(conversation), _PROJECT_MAX_CHARS),
            date=hit.created_at[:10],
            score=round(score, 2),
            summary=shorten(summary_of(conversation), _SUMMARY_MAX_CHARS) or said,
            snippet=highlighter.snippet(messages[-1].content, snippet_chars).text,
            line_start=lines_of(exchange[0]).start,
            line_end=lines_of(messages[-1]).end,
        )

    async def _conversation(self, identity: str) -> Conversation | None:
        if identity not in self._known:
            try:
                self._known[identity] = await self._chats.get(identity)
            except NotFound:
                self._known[identity] = None
        return self._known[identity]

    def _is_wanted(self, conversation: Conversation) -> bool:
        return not self._projects or project_of(conversation).casefold() in self._projects


class _Pages:
    """The hits of a search, page by page, up to a bound. `is_whole` once they ended before it."""

    def __init__(self, chats: Chats, search: Search, examined_max: int) -> None:
        self._chats = chats
        self._search = search
        self._examined_max = examined_max
        self._offset = 0
        self.is_whole = False

    async def next(self) -> Sequence[Hit]:
        size = min(LIMIT_MAX, self._examined_max - self._offset)
        if self.is_whole or size <= 0:
            return ()
        found = await self._chats.search(replace(self._search, limit=size, offset=self._offset))
        self._offset += size
        self.is_whole = not found.has_more
        return found.hits


def _rows(rows: tuple[ExchangeRow, ...], total: int, notes: tuple[str, ...], *, is_whole: bool) -> Rows:
    return Rows(rows, total, notes) if is_whole else Rows(rows, None, (*notes, _CUT))


def requiring_all(query: ParsedQuery) -> ParsedQuery:
    """A concept of several words is there where all of them are. Operators that were typed stay as they are."""
    if query.has_operators or query.expression is None:
        return query
    return replace(query, expression=_all_of(query.expression), has_operators=True)


def _all_of(expression: Expression) -> Expression:
    match expression:
        case AnyOf(parts=parts):
            return AllOf(parts)
        case Without(keep=keep, drop=drop):
            return Without(_all_of(keep), drop)
        case _:
            return expression


def _told(question: Question) -> tuple[str, ...]:
    return (f"Query interpretation: {question.read_as}.",) if question.read_as else ()


def _says_it_itself(hit: Hit, highlighter: Highlighter) -> bool:
    """Messages are found by what was said right before and after them too, which may be another exchange."""
    # What agents may not read has no text to count in.
    return hit.is_human_only or any(highlighter.count(f"{hit.sender}: {hit.text}"))


def _average(hits: Sequence[Hit]) -> float:
    return sum(hit.score for hit in hits) / len(hits)


def _best(hits: Sequence[Hit]) -> Hit:
    return max(hits, key=lambda hit: hit.score)
