"""Arguments and results of `conversation_search`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from server.protocol.schema import input_schema

ROLES = ("user", "assistant", "tool")
DEFAULT_LIMIT = 50


class ConversationSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients send any value as `limit` and a plain string as `roles`; the listed schema is stricter."""

    query: Annotated[str | None, Meta(description="Text to match in messages and conversation titles.")] = None
    roles: tuple[str, ...] | str | None = None
    start_date: Annotated[str | None, Meta(description="First date or time, inclusive; ISO 8601, UTC.")] = None
    end_date: Annotated[str | None, Meta(description="Last date or time, inclusive; a date is its whole day.")] = None
    limit: Any = DEFAULT_LIMIT
    format: Annotated[Literal["text", "json"], Meta(description="json: Letta's result shape.")] = "text"


class LettaRelevance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a message was found. `fts_rank` is its rank by its text among the results, from 1; there is none without a
    query. `vector_rank` is its rank by meaning, in a hybrid search. `rrf_score` is Letta's: the reciprocal of the rank
    in a search with one ranking, and the reciprocal rank fusion of both ranks in a hybrid search."""

    rrf_score: float
    vector_rank: int | None = None
    fts_rank: int | None = None
    search_mode: Literal["hybrid", "fts", "timestamp"]


class LettaResult(Struct, frozen=True, kw_only=True):
    timestamp: str | None
    time_ago: str | None
    role: str
    relevance: LettaRelevance
    content: str


class LettaResponse(Struct, frozen=True, kw_only=True):
    """`note` is present only if something was not searched or compared."""

    message: str
    results: tuple[LettaResult, ...]
    note: str | UnsetType = UNSET


def conversation_search_schema(limit_max: int) -> Mapping[str, Any]:
    """Returns the input schema with the types that `roles` and `limit` should have."""
    schema = input_schema(ConversationSearch)
    schema["properties"]["roles"] = {
        "type": "array",
        "items": {"type": "string", "enum": list(ROLES)},
        "description": "Only messages of these roles.",
    }
    schema["properties"]["limit"] = {
        "type": "integer",
        "default": DEFAULT_LIMIT,
        "description": f"Messages, 1 to {limit_max}.",
    }
    return schema
