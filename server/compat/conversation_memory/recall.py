"""Layer 1: short rows for what was learned; where nothing was, exchanges of the caller's own conversations, labelled as
such. Several concepts are looked for in conversations, which must hold all of them.

All of it is text search; an answer says so, whichever mode was asked for.
"""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from auth.context import RequestContext
from config.settings import Settings
from server.compat.conversation_memory.chat_search import ChatSearch
from server.compat.conversation_memory.questions import Recall
from server.compat.conversation_memory.rows import ExchangeRow, Kind, ObservationRow, Recalled
from sources.records import Observation
from sources.search.arguments import SearchArguments, read_query, read_question
from sources.storage.contract import Library
from sources.text.excerpts import shorten

# A row is a label; layer 2 has all of it.
_TITLE_MAX_CHARS = 160
_LABEL_MAX_CHARS = 60
_INSTEAD = "No observations found. These are exchanges of conversations, as they were said."
_ONLY_OBSERVATIONS = "Conversations were not searched: types, concepts and files are of observations alone."


async def recall(library: Library, context: RequestContext, settings: Settings, asked: Recall) -> Recalled:
    chats = ChatSearch(library.chats, context, settings, asked)
    if not asked.is_single:
        found = await chats.conversations()
        return _recalled("conversations", asked, found.rows, found.total, found.notes)
    learned = await _observations(library, context, settings, asked)
    if learned.count:
        return learned
    if asked.is_about_observations:
        return replace(learned, note=_ONLY_OBSERVATIONS)
    found = await chats.exchanges()
    notes = (_INSTEAD, *found.notes) if found.rows else found.notes
    return _recalled("exchanges", asked, found.rows, found.total, notes)


async def _observations(library: Library, context: RequestContext, settings: Settings, asked: Recall) -> Recalled:
    text = asked.concepts[0]
    query = read_query(text, settings)
    question = read_question("observations", SearchArguments(query=text, limit=asked.limit), query, context, settings)
    notes = [f"Query interpretation: {question.read_as}."] if question.read_as else []
    if question.search is None:
        return _recalled("observations", asked, (), 0, notes)
    found = await library.observations.search(question.search, asked.narrowing)
    kept = {row.id: row for row in await library.observations.get_many([str(hit.id) for hit in found.hits])}
    rows = [_row(kept[str(hit.id)], hit.score) for hit in found.hits if hit.id in kept]
    return _recalled("observations", asked, rows, found.total, notes)


def _recalled(
    kind: Kind,
    asked: Recall,
    rows: Sequence[ObservationRow] | Sequence[ExchangeRow],
    total: int | None,
    notes: Sequence[str],
) -> Recalled:
    return Recalled(
        kind=kind,
        results=tuple(rows),
        total=total,
        count=len(rows),
        mode=asked.mode,
        concepts=UNSET if asked.is_single else asked.concepts,
        note=" ".join(notes) or UNSET,
    )


def _row(found: Observation, score: float) -> ObservationRow:
    return ObservationRow(
        id=found.id,
        type=shorten(found.type, _LABEL_MAX_CHARS),
        title=shorten(found.title, _TITLE_MAX_CHARS),
        project=shorten(found.project, _LABEL_MAX_CHARS),
        date=found.created_at[:10],
        score=round(score, 2),
    )
