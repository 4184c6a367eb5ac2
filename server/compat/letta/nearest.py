"""Finds the messages whose meaning is nearest to a query, if an embedding model is configured."""

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from config.errors import NotFound, SourceTimeout
from server.compat.letta.service import is_history
from server.compat.meaning_note import meaning_note
from sources.query import parse_literal
from sources.records import MessageHit, SemanticStatus
from sources.search.arguments import LIMIT_MAX
from sources.storage.contract import Chats, MessageSearch, Search

_TIMED_OUT = SemanticStatus("unavailable", reason="comparing meanings took too long")


class NearMessages(Struct, frozen=True):
    """Nearest first. `note` says why meanings could not be compared, or not with all messages."""

    hits: tuple[MessageHit, ...]
    note: str | None


async def find_nearest(chats: Chats, search: MessageSearch, own_tools: Collection[str], limit: int) -> NearMessages:
    """Returns up to `limit` messages of the history that pass the filters."""
    query = parse_literal(search.text or "")
    if query.expression is None:
        return NearMessages((), None)
    request = Search(
        query=replace(query, prose=search.text or ""),
        limit=LIMIT_MAX,
        deadline_ms=search.deadline_ms,
        ranking="meaning",
        by="message",
        # Senders are compared with roles too.
        senders=search.roles,
        date_from=search.date_from,
        date_to=search.date_to,
        is_strict=True,
    )
    try:
        page = await chats.search(request)
    except SourceTimeout:
        return NearMessages((), meaning_note(_TIMED_OUT))
    hits: list[MessageHit] = []
    for hit in page.hits:
        if len(hits) == limit:
            break
        try:
            message = await chats.get_message(str(hit.message_id))
        except NotFound:  # deleted since the search
            continue
        if is_history(message, own_tools) and (not search.roles or message.role in search.roles):
            hits.append(MessageHit(message=message, title=hit.title))
    return NearMessages(tuple(hits), _problem(page.semantic))


def _problem(status: SemanticStatus) -> str | None:
    """Without a model the search is by text, which needs no note."""
    return meaning_note(status) if status.status in ("unavailable", "partial") else None
