"""Layer 1: searches observations. If none match, it searches exchanges of conversations instead and says so. Several
concepts are searched in conversations, which must match all of them.

If meanings could not be compared, the result says so unless mode `text` was requested.
"""

from collections.abc import Sequence

from msgspec import UNSET

from auth.context import RequestContext
from config.settings import Settings
from server.compat.conversation_memory.arguments import MemoryQuery
from server.compat.conversation_memory.conversation_search import ConversationSearcher, ExchangeResults
from server.compat.conversation_memory.meaning import is_compared
from server.compat.conversation_memory.observation_search import ObservationResults, search_observations
from server.compat.conversation_memory.schemas import MemoryResults, ResultKind
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
        return _results("conversations", query, await searcher.search_conversations())
    observations = await search_observations(library, context, settings, query)
    if query.has_observation_filters:
        note = () if observations.rows else (_OBSERVATIONS_ONLY,)
        return _results("observations", query, observations, note)
    # Observations are always more or less near. In mode `both`, exchanges that contain the words are better.
    has_words = observations.has_matching_words or query.ranking == "meaning"
    if observations.rows and has_words:
        return _results("observations", query, observations)
    exchanges = await searcher.search_exchanges()
    if observations.rows and not exchanges.has_matching_words:
        return _results("observations", query, observations)
    note = (_EXCHANGES_INSTEAD,) if exchanges.rows else ()
    return _results("exchanges", query, exchanges, note)


def _results(
    kind: ResultKind,
    query: MemoryQuery,
    found: ObservationResults | ExchangeResults,
    notes: Sequence[str] = (),
) -> MemoryResults:
    return MemoryResults(
        kind=kind,
        results=found.rows,
        total=found.total,
        count=len(found.rows),
        mode=query.mode,
        served_by=query.mode if is_compared(found.semantic) else "text",
        semantic=UNSET if query.is_literal else found.semantic,
        concepts=UNSET if query.is_single_concept else query.concepts,
        note=" ".join([*notes, *found.notes]) or UNSET,
    )
