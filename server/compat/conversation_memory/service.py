"""Layer 1: searches observations. If none match, it searches exchanges of conversations instead and says so. Several
concepts are searched in conversations, which must match all of them.

All of it is text search, and the result says so unless mode `text` was requested.
"""

from collections.abc import Sequence

from msgspec import UNSET

from auth.context import RequestContext
from config.settings import Settings
from server.compat.conversation_memory.arguments import MemoryQuery
from server.compat.conversation_memory.conversation_search import ConversationSearcher
from server.compat.conversation_memory.observation_search import search_observations
from server.compat.conversation_memory.schemas import ExchangeRow, MemoryResults, ObservationRow, ResultKind
from sources.storage.contract import Library

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
    observations = await search_observations(library, context, settings, query)
    if observations.rows:
        return _results("observations", query, observations.rows, observations.total, observations.notes)
    if query.has_observation_filters:
        return _results("observations", query, (), 0, (*observations.notes, _OBSERVATIONS_ONLY))
    exchanges = await searcher.search_exchanges()
    notes = (_EXCHANGES_INSTEAD, *exchanges.notes) if exchanges.rows else exchanges.notes
    return _results("exchanges", query, exchanges.rows, exchanges.total, notes)


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
