"""Searches the caller's observations for a single concept, by words and by meaning."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import NotFound
from config.settings import Settings
from server.compat.conversation_memory import transcript
from server.compat.conversation_memory.arguments import ExchangeRow, MemoryQuery, ObservationRow
from server.compat.conversation_memory.transcript import memory_error, path_of
from sources.importers.engine.files import imported_observation_id
from sources.query import AllOf, AnyOf, Expression, ParsedQuery, Without, literal_text, parse_literal
from sources.records import Hit, HitPage, Observation, SemanticStatus
from sources.search.arguments import LIMIT_MAX, SearchArguments, SourceQuery, build_query, read_query
from sources.search.snippets import Highlighter
from sources.storage.contract import Library, Observations, Search
from sources.text.chunking import first_sentence, run_text_work, shorten

# -- concept queries ---------------------------------------------------------------------------------------------------
# Builds the searches for one concept of a memory query, in observations and in conversations.
#
# In mode `text` a concept is a text to be found as written, and in mode `vector` a meaning. In mode `both` it is a
# query that is compared by its words and its meaning.

# The index also has the messages before each message, which may belong to another exchange.
_MESSAGE_ITSELF = ("own",)
_NO_WORDS = "searched for nothing; the query contains no words"


def observation_query(query: MemoryQuery, context: RequestContext, settings: Settings) -> SourceQuery:
    [concept] = query.concepts
    return build_query(
        "observations",
        SearchArguments(query=concept, limit=query.limit),
        context,
        settings,
        parsed=_parse(query, concept, settings),
        contains=_required_text(query, concept),
        ranking=query.ranking,
    )


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
        date_from=query.time_range.start,
        date_to=query.time_range.end,
        by="message",
        projects=query.projects,
        contains=_required_text(query, concept),
        fields=_MESSAGE_ITSELF if query.is_single_concept else (),
        # Of several concepts, all must be there: a message that is merely near to one does not show that.
        ranking="words" if query.ranking == "fused" and not query.is_single_concept else query.ranking,
    )


def query_notes(query: SourceQuery) -> tuple[str, ...]:
    """A query of filters only is not listed, as it has no concept."""
    read_as = query.read_as if query.terms or query.search is None else _NO_WORDS
    return (f"Query interpretation: {read_as}.",) if read_as else ()


def _required_text(query: MemoryQuery, concept: str) -> str | None:
    return literal_text(concept) if query.is_literal else None


def _parse(query: MemoryQuery, concept: str, settings: Settings) -> ParsedQuery:
    if query.is_literal:
        if len(concept) > settings.fixed.query_max_chars:
            expected = f"at most {settings.fixed.query_max_chars} characters in mode text"
            raise memory_error(f"query: expected {expected}, got {len(concept)}")
        return parse_literal(concept)
    # What was searched for instead of a concept could not be reported with it.
    parsed = replace(read_query(concept, settings), relaxed=None)
    if query.ranking == "meaning":
        parsed = replace(parsed, prose=parsed.prose or concept)
    if query.is_single_concept or parsed.has_operators or parsed.expression is None:
        return parsed
    # One of several concepts must match with all of its words, unless its operators say otherwise.
    return replace(parsed, expression=_all_of(parsed.expression), has_operators=True)


def _all_of(expression: Expression) -> Expression:
    match expression:
        case AnyOf(parts=parts):
            return AllOf(parts)
        case Without(keep=keep, drop=drop):
            return Without(_all_of(keep), drop)
        case _:
            return expression


# -- meaning -----------------------------------------------------------------------------------------------------------
# How the modes `vector` and `both` compare meanings.

# What is reported if nothing was searched.
NOT_SEARCHED = SemanticStatus("not_applicable")


async def search_by_mode(search: Callable[[Search], Awaitable[HitPage]], request: Search) -> HitPage:
    """Searches by words if only meanings are asked for and they cannot be compared."""
    page = await search(request)
    if request.ranking != "meaning" or is_compared(page.semantic):
        return page
    return replace(await search(replace(request, ranking="words")), semantic=page.semantic)


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
    source_query = observation_query(query, context, settings)
    notes = query_notes(source_query)
    if source_query.search is None:
        return MatchingRows((), 0, notes)
    results = await search_by_mode(
        lambda search: library.observations.search(search, query.observation_filter), source_query.search
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
        raise memory_error(transcript.BAD_ID, ", ".join(missing))
    return list({observation.id: observation for observation in found.values() if observation is not None}.values())
