"""Searches messages by full-text expressions: matches for the MCP tool, whole messages for REST.

For agents, the storage layer redacts human-only messages.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from config.numbers import clamp
from config.settings import Settings
from config.times import extend_to_microseconds
from server.compat.agentchatbus.schemas import BusSearchResults, FullMessageMatch, MessageMatch
from server.compat.agentchatbus.threads import author_metadata
from server.compat.agentchatbus.tool_schemas import MsgSearchResults
from sources.records import ExactHit, ExactHits
from sources.storage.contract import Chats, ExactSearch


async def search_matches(
    chats: Chats, query: str, thread_id: str | None, limit: int, settings: Settings
) -> MsgSearchResults:
    results = await chats.match_messages(_exact_search(query, thread_id, limit, settings))
    rows = tuple(MessageMatch(**_match_fields(hit)) for hit in results.hits)
    return MsgSearchResults(results=rows, total=len(rows), query=query, **_remarks(results, query, settings))


async def search_messages(
    chats: Chats, query: str, thread_id: str | None, limit: int, settings: Settings
) -> BusSearchResults:
    results = await chats.match_messages(_exact_search(query, thread_id, limit, settings))
    rows = tuple(
        FullMessageMatch(**_match_fields(hit), content=hit.message.content, metadata=author_metadata(hit.message))
        for hit in results.hits
    )
    return BusSearchResults(results=rows, total=len(rows), query=query, **_remarks(results, query, settings))


def _exact_search(query: str, thread_id: str | None, limit: int, settings: Settings) -> ExactSearch:
    """Truncates an expression that is too long; a note reports it."""
    return ExactSearch(
        expression=query[: settings.query_max_chars],
        conversation_id=thread_id or None,
        phrases_max=settings.query_max_terms,
        limit=clamp(limit, 1, settings.conversation_hits_max),
        deadline_ms=settings.search_deadline_ms,
    )


def _remarks(results: ExactHits, query: str, settings: Settings) -> dict[str, Any]:
    notes = "; ".join(_notes(results, query, settings.query_max_chars))
    return {"read_as": results.read_as or UNSET, "note": notes or UNSET}


def _notes(results: ExactHits, query: str, query_max_chars: int) -> Iterator[str]:
    if len(query) > query_max_chars:
        yield f"the query was truncated to its first {query_max_chars} characters"
    if not results.is_ranked:
        yield "too many messages match to rank them; the newest come first"
    if not results.is_complete:
        yield "older messages are still being indexed; try again later"


def _match_fields(hit: ExactHit) -> dict[str, Any]:
    message = hit.message
    return {
        "message_id": message.id,
        "id": message.id,
        "thread_id": message.conversation_id,
        "thread_topic": hit.title,
        "author": message.sender,
        "seq": message.number,
        "created_at": extend_to_microseconds(message.created_at),
        "snippet": hit.snippet,
    }
