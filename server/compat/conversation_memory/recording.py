"""Observations as clients write them down. The model that calls is the one who understood; nothing is added to what it
says but where it comes from."""

from collections.abc import Sequence
from typing import Annotated
from uuid import uuid4

import msgspec
from msgspec import UNSET, Meta, Struct

from config.errors import InvalidParams, NotFound
from server.compat.conversation_memory.archive import find_conversation
from sources.drafts import ObservationDraft
from sources.importers.engine.ids import observation_id
from sources.storage.contract import Chats, Library


class ObservationEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="What was learned, in one line.")]
    type: Annotated[str, Meta(description="Such as decision, bugfix, feature, refactor, learning.")] = "general"
    subtitle: Annotated[str, Meta(description="What it comes to.")] = ""
    narrative: Annotated[str, Meta(description="Why, and how it came about.")] = ""
    facts: Annotated[tuple[str, ...], Meta(description="Short statements that can be checked.")] = ()
    concepts: Annotated[tuple[str, ...], Meta(description="To filter by.")] = ()
    files_read: Annotated[tuple[str, ...], Meta(description="Paths.")] = ()
    files_modified: Annotated[tuple[str, ...], Meta(description="Paths.")] = ()
    project: Annotated[str, Meta(description="To filter by.")] = ""
    session_id: Annotated[str, Meta(description="Of the session it was learned in.")] = ""
    time: Annotated[str | None, Meta(description="ISO 8601; now if left out.")] = None
    conversation_id: Annotated[
        str | None, Meta(description="Where it was read: an id, or a path of memory_search.")
    ] = None
    line_start: Annotated[int | None, Meta(description="Of the conversation, from 1.")] = None
    line_end: Annotated[int | None, Meta(description="Included.")] = None


class RecordedObservation(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    created_at: str


class Recorded(Struct, frozen=True, kw_only=True):
    """In the order in which they were given."""

    observations: tuple[RecordedObservation, ...]
    count: int


async def record(library: Library, entries: Sequence[ObservationEntry], idempotency_key: str | None) -> Recorded:
    """All or none of them; a second time under the same key, what the first made."""
    drafts = [
        _draft(entry, _identity(entry, number, idempotency_key), await _conversation(library.chats, entry, number))
        for number, entry in enumerate(entries)
    ]
    made = await library.observations.create_many(drafts, idempotency_key=idempotency_key)
    rows = tuple(RecordedObservation(id=one.id, title=one.title, created_at=one.created_at) for one in made)
    return Recorded(observations=rows, count=len(rows))


def _identity(entry: ObservationEntry, number: int, key: str | None) -> str:
    """Under a key the same entry gets the same id, or a repetition would not be the same request."""
    if key is None:
        return observation_id(uuid4().hex)
    return observation_id("client", key, str(number), msgspec.json.encode(entry).decode())


async def _conversation(chats: Chats, entry: ObservationEntry, number: int) -> str | None:
    """Its id, if it is one of the caller's; absent and somebody else's are refused alike."""
    named = entry.conversation_id
    if named is None:
        return None
    try:
        is_path = "/" in named or named.endswith(".jsonl")
        return (await find_conversation(chats, named) if is_path else await chats.get(named)).id
    except (NotFound, InvalidParams):
        place = f"observations[{number}].conversation_id"
        raise InvalidParams(
            f"{place}: got {named[:80]!r}, expected the id or path of a conversation of yours"
        ) from None


def _draft(entry: ObservationEntry, identity: str, conversation_id: str | None) -> ObservationDraft:
    return ObservationDraft(
        uuid=identity,
        type=entry.type,
        title=entry.title,
        subtitle=entry.subtitle,
        narrative=entry.narrative,
        facts=entry.facts,
        concepts=entry.concepts,
        files_read=entry.files_read,
        files_modified=entry.files_modified,
        project=entry.project,
        session_id=entry.session_id,
        origin="client",
        conversation_id=conversation_id,
        line_start=entry.line_start,
        line_end=entry.line_end,
        created_at=UNSET if entry.time is None else entry.time,
    )
