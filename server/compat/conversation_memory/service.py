"""Layer 1: searches observations. If none match, it searches exchanges of conversations instead and says so. Several
concepts are searched in conversations, which must match all of them.

If meanings could not be compared, the result says so unless mode `text` was requested.
"""

from collections.abc import Sequence
from uuid import uuid4

import msgspec
from msgspec import UNSET

from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from config.settings import Settings
from server.compat.conversation_memory import schemas
from server.compat.conversation_memory.arguments import MemoryQuery
from server.compat.conversation_memory.conversation_search import ConversationSearcher
from server.compat.conversation_memory.observation_search import MatchingRows, is_compared, search_observations
from server.compat.conversation_memory.transcript import find_conversation
from sources.drafts import ObservationDraft
from sources.importers.engine.ids import observation_id
from sources.storage.contract import Chats, Library

_EXCHANGES_INSTEAD = "No observations found. These results are exchanges from conversations."
_OBSERVATIONS_ONLY = (
    "Conversations were not searched: the filters types, concepts and files apply to observations only."
)


async def search_memory(
    library: Library, context: RequestContext, settings: Settings, query: MemoryQuery
) -> schemas.MemoryResults:
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
    kind: schemas.ResultKind, query: MemoryQuery, found: MatchingRows, notes: Sequence[str] = ()
) -> schemas.MemoryResults:
    return schemas.MemoryResults(
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


# -- recording ---------------------------------------------------------------------------------------------------------
# Records observations as clients send them. Only their origin is added.

# The other fields of an entry are stored as they are, under the same names.
_OTHER_IN_STORAGE = frozenset(("conversation_id", "time"))


async def record_observations(
    library: Library, entries: Sequence[schemas.ObservationEntry], idempotency_key: str | None
) -> schemas.RecordedObservations:
    """Records all entries or none. A retry with the same key returns what the first call recorded."""
    drafts = []
    for index, entry in enumerate(entries):
        # With a key the same entry gets the same id; otherwise a retry would be a different request.
        parts: tuple[str, ...] = (uuid4().hex,)
        if idempotency_key is not None:
            parts = ("client", idempotency_key, str(index), msgspec.json.encode(entry).decode())
        fields = {name: getattr(entry, name) for name in entry.__struct_fields__ if name not in _OTHER_IN_STORAGE}
        drafts.append(
            ObservationDraft(
                uuid=observation_id(*parts),
                origin="client",
                conversation_id=await _conversation_id(library.chats, entry, index),
                created_at=UNSET if entry.time is None else entry.time,
                **fields,
            )
        )
    observations = await library.observations.create_many(drafts, idempotency_key=idempotency_key)
    recorded = tuple(
        schemas.RecordedObservation(id=observation.id, title=observation.title, created_at=observation.created_at)
        for observation in observations
    )
    return schemas.RecordedObservations(observations=recorded, count=len(recorded))


async def _conversation_id(chats: Chats, entry: schemas.ObservationEntry, index: int) -> str | None:
    """Raises the same error for a missing conversation and for one of another user."""
    name = entry.conversation_id
    if name is None:
        return None
    try:
        is_path = "/" in name or name.endswith(".jsonl")
        return (await find_conversation(chats, name) if is_path else await chats.get(name)).id
    except (NotFound, InvalidParams):
        raise InvalidParams(
            f"observations[{index}].conversation_id: expected the id or path of one of your conversations, "
            f"got {name[:80]!r}"
        ) from None
