"""Arguments and results of the memory tools."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from server.protocol.schema import input_schema
from sources.records import SemanticStatus

Mode = Literal["vector", "text", "both"]
ResponseFormat = Literal["markdown", "json"]
ResultKind = Literal["observations", "exchanges", "conversations"]

# conversation-memory's own limits; its error messages name them (see `transcript.py`).
QUERY_MIN_CHARS = 2
CONCEPTS_MIN = 2
CONCEPTS_MAX = 5
ROWS_MAX = 50
IDS_MAX = 20


# Layer 1


class MemorySearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of type `Any` are validated with conversation-memory's own messages; `memory_search_schema` lists their
    types."""

    query: Any
    mode: Annotated[Mode, Meta(description="vector: by meaning; text: exactly this text, ignoring case.")] = "both"
    limit: Annotated[int, Meta(description=f"1..{ROWS_MAX}.")] = 10
    after: Any = None
    before: Any = None
    projects: Annotated[tuple[str, ...], Meta(description="Any of these.")] = ()
    types: Annotated[tuple[str, ...], Meta(description="Any of these; single concept only.")] = ()
    concepts: Annotated[tuple[str, ...], Meta(description="Tagged with any of these; single concept only.")] = ()
    files: Annotated[tuple[str, ...], Meta(description="Read or modified any of these; single concept only.")] = ()
    response_format: Annotated[ResponseFormat, Meta(description="json for programs.")] = "markdown"


class ObservationRow(Struct, frozen=True, kw_only=True):
    """Just enough to choose from; `get_observations` returns the rest. `path` is empty if the observation names no
    conversation."""

    id: str
    type: str
    title: str
    path: str
    project: str
    date: str
    score: float
    summary: str
    snippet: str


class ExchangeRow(Struct, frozen=True, kw_only=True):
    """An exchange up to its match, or the best match of a conversation. `read` takes its path and lines."""

    path: str
    project: str
    date: str
    score: float
    summary: str
    snippet: str
    line_start: int
    line_end: int


class MemoryResults(Struct, frozen=True, kw_only=True):
    """`total` is exact or null. `note` is present if the query was reinterpreted or the results are incomplete.
    `served_by` is what was compared: the mode, or `text` if `semantic` says that meanings could not be compared."""

    kind: ResultKind
    results: tuple[ObservationRow | ExchangeRow, ...]
    total: int | None
    count: int
    mode: Mode
    served_by: Mode = "text"
    semantic: SemanticStatus | UnsetType = UNSET
    concepts: tuple[str, ...] | UnsetType = UNSET
    note: str | UnsetType = UNSET


# Layer 2


class GetObservations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ids: Any


# Layer 3


class ReadConversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    path: Any
    start_line: Annotated[int, Meta(description="First line, from 1.")] = 1
    end_line: Annotated[int | None, Meta(description="Last line; default: the end.")] = None


# Recording


class ObservationEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="What was learned, in one line.")]
    type: Annotated[str, Meta(description="Such as decision, bugfix, feature, refactor, learning.")] = "general"
    subtitle: Annotated[str, Meta(description="The conclusion.")] = ""
    narrative: Annotated[str, Meta(description="Why, and how it came about.")] = ""
    facts: Annotated[tuple[str, ...], Meta(description="Short statements that can be checked.")] = ()
    concepts: Annotated[tuple[str, ...], Meta(description="Concepts to filter by.")] = ()
    files_read: Annotated[tuple[str, ...], Meta(description="Paths.")] = ()
    files_modified: Annotated[tuple[str, ...], Meta(description="Paths.")] = ()
    project: Annotated[str, Meta(description="Project to filter by.")] = ""
    session_id: Annotated[str, Meta(description="Session in which it was learned.")] = ""
    time: Annotated[str | None, Meta(description="ISO 8601; default: now.")] = None
    conversation_id: Annotated[
        str | None, Meta(description="Conversation it comes from: an id, or a path from memory_search.")
    ] = None
    line_start: Annotated[int | None, Meta(description="First line in the conversation, from 1.")] = None
    line_end: Annotated[int | None, Meta(description="Last line, inclusive.")] = None


class RecordObservations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    observations: Annotated[tuple[ObservationEntry, ...], Meta(description="One or more.")]
    idempotency_key: Annotated[
        str | None, Meta(description="Identifies this call: a retry with the same key records nothing.")
    ] = None


class RecordedObservation(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    created_at: str


class RecordedObservations(Struct, frozen=True, kw_only=True):
    """The stored observations, in the order of the request."""

    observations: tuple[RecordedObservation, ...]
    count: int


# Input schemas


def memory_search_schema() -> Mapping[str, Any]:
    query = {
        "anyOf": [
            {"type": "string", "minLength": QUERY_MIN_CHARS},
            {"type": "array", "items": {"type": "string"}, "minItems": CONCEPTS_MIN, "maxItems": CONCEPTS_MAX},
        ],
        "description": "One concept, or several that must all match.",
    }
    after = {"type": "string", "description": "YYYY-MM-DD, inclusive."}
    before = {"type": "string", "description": "YYYY-MM-DD, exclusive."}
    return _schema_with(MemorySearch, query=query, after=after, before=before)


def get_observations_schema() -> Mapping[str, Any]:
    ids = {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "maxItems": IDS_MAX,
        "description": "Ids from a search.",
    }
    return _schema_with(GetObservations, ids=ids)


def read_conversation_schema() -> Mapping[str, Any]:
    return _schema_with(ReadConversation, path={"type": "string", "description": "Path from a search."})


def _schema_with(arguments: type[Any], **properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of a Struct with some properties replaced."""
    schema = input_schema(arguments)
    return {**schema, "properties": schema["properties"] | properties}
