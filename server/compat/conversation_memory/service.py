"""Layer 1: searches observations. If none match, it searches exchanges of conversations instead and says so. Several
concepts are searched in conversations, which must match all of them.

All of it is text search, and the result says so, whichever mode was requested.
"""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from auth.context import RequestContext
from config.settings import Settings
from server.compat.conversation_memory.arguments import MemoryQuery
from server.compat.conversation_memory.conversation_search import ConversationSearcher
from server.compat.conversation_memory.schemas import ExchangeRow, MemoryResults, ObservationRow, ResultKind
from sources.records import Observation
from sources.search.arguments import SearchArguments, build_query
from sources.storage.contract import Library
from sources.text.excerpts import shorten

# Rows are labels; layer 2 returns the whole texts.
_TITLE_MAX_CHARS = 160
_LABEL_MAX_CHARS = 60
_EXCHANGES_INSTEAD = "No observations found. These results are exchanges from conversations."
_OBSERVATIONS_ONLY = (
    "Conversations were not searched: the filters types, concepts and files apply to observations only."
)


async def search_memory(
    library: Library, context: RequestContext, settings: Settings, query: MemoryQuery
) -> MemoryResults:
    searcher = ConversationSearcher(library.chats, context, settings, query)
    if not query.is_single_concept:
        conversations = await searcher.search_conversations()
        return _results("conversations", query, conversations.rows, conversations.total, conversations.notes)
    observations = await _search_observations(library, context, settings, query)
    if observations.count:
        return observations
    if query.has_observation_filters:
        return replace(observations, note=_OBSERVATIONS_ONLY)
    exchanges = await searcher.search_exchanges()
    notes = (_EXCHANGES_INSTEAD, *exchanges.notes) if exchanges.rows else exchanges.notes
    return _results("exchanges", query, exchanges.rows, exchanges.total, notes)


async def _search_observations(
    library: Library, context: RequestContext, settings: Settings, query: MemoryQuery
) -> MemoryResults:
    text = query.concepts[0]
    arguments = SearchArguments(query=text, limit=query.limit)
    source_query = build_query("observations", arguments, context, settings)
    notes = [f"Query interpretation: {source_query.read_as}."] if source_query.read_as else []
    if source_query.search is None:
        return _results("observations", query, (), 0, notes)
    results = await library.observations.search(source_query.search, query.observation_filter)
    by_id = {row.id: row for row in await library.observations.get_many([str(hit.id) for hit in results.hits])}
    rows = [_observation_row(by_id[str(hit.id)], hit.score) for hit in results.hits if hit.id in by_id]
    return _results("observations", query, rows, results.total, notes)


def _results(
    kind: ResultKind,
    query: MemoryQuery,
    rows: Sequence[ObservationRow] | Sequence[ExchangeRow],
    total: int | None,
    notes: Sequence[str],
) -> MemoryResults:
    return MemoryResults(
        kind=kind,
        results=tuple(rows),
        total=total,
        count=len(rows),
        mode=query.mode,
        concepts=UNSET if query.is_single_concept else query.concepts,
        note=" ".join(notes) or UNSET,
    )


def _observation_row(observation: Observation, score: float) -> ObservationRow:
    return ObservationRow(
        id=observation.id,
        type=shorten(observation.type, _LABEL_MAX_CHARS),
        title=shorten(observation.title, _TITLE_MAX_CHARS),
        project=shorten(observation.project, _LABEL_MAX_CHARS),
        date=observation.created_at[:10],
        score=round(score, 2),
    )
