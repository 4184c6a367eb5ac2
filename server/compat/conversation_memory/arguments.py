"""Validates the arguments of the memory tools. The first mistake is reported with conversation-memory's own sentence;
nothing is clamped silently.
"""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from config.errors import InvalidParams
from sources.reading.exchanges import LineRange
from sources.records import SemanticStatus
from sources.search.arguments import parse_time_bound
from sources.storage.contract import ObservationFilter, Ranking

# conversation-memory's clients match on the sentences of errors, and on these two; details follow them.
NO_OBSERVATIONS = "No observations found matching your query."
NO_CONVERSATIONS = "No conversations found"
BAD_ID = "Invalid observation ID"
BAD_LINES = "Invalid line range"

_DETAIL_MAX_CHARS = 200


def memory_error(sentence: str, detail: str = "") -> InvalidParams:
    return InvalidParams(f"Error: {sentence}: {detail[:_DETAIL_MAX_CHARS]}" if detail else f"Error: {sentence}")


Mode = Literal["vector", "text", "both"]
ResponseFormat = Literal["markdown", "json"]
ResultKind = Literal["observations", "exchanges", "conversations"]

# conversation-memory's own limits; its error messages name them.
QUERY_MIN_CHARS = 2
CONCEPTS_MIN = 2
CONCEPTS_MAX = 5
ROWS_MAX = 50
IDS_MAX = 20
_STRING = {"type": "string"}


# Layer 1


class MemorySearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of type `Any` are validated with conversation-memory's own messages; only clients see their types."""

    query: Annotated[
        Any,
        Meta(
            description="One concept, or several that must all match.",
            extra_json_schema={
                "anyOf": [
                    {"type": "string", "minLength": QUERY_MIN_CHARS},
                    {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": CONCEPTS_MIN,
                        "maxItems": CONCEPTS_MAX,
                    },
                ]
            },
        ),
    ]
    mode: Annotated[Mode, Meta(description="vector: by meaning; text: exactly this text, ignoring case.")] = "both"
    limit: Annotated[int, Meta(description=f"1..{ROWS_MAX}.")] = 10
    after: Annotated[Any, Meta(description="YYYY-MM-DD, inclusive.", extra_json_schema=_STRING)] = None
    before: Annotated[Any, Meta(description="YYYY-MM-DD, exclusive.", extra_json_schema=_STRING)] = None
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
    ids: Annotated[
        Any,
        Meta(
            description="Ids from a search.",
            extra_json_schema={"type": "array", "items": _STRING, "minItems": 1, "maxItems": IDS_MAX},
        ),
    ]


# Layer 3


class ReadConversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    path: Annotated[Any, Meta(description="Path from a search.", extra_json_schema=_STRING)]
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


# Longer than any conversation, and a number that every storage engine can handle.
LINE_MAX = 1_000_000_000
_WRONG_COUNT = "Query array must have 2-5 items"
_RANKINGS: Mapping[Mode, Ranking] = {"vector": "meaning", "text": "words", "both": "fused"}
# `date.fromisoformat` accepts other forms of ISO 8601 as well, which conversation-memory rejects.
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)


class MemoryQuery(Struct, frozen=True, kw_only=True):
    """A validated search for one concept, or for several that must all match."""

    concepts: tuple[str, ...]
    mode: Mode
    limit: int
    # Conversations are filtered by projects and dates only: they do not have the other fields.
    filters: ObservationFilter

    @property
    def is_literal(self) -> bool:
        """Whether concepts are texts to be found as written, and not words of which any may match."""
        return self.mode == "text"

    @property
    def ranking(self) -> Ranking:
        return _RANKINGS[self.mode]

    @property
    def is_single_concept(self) -> bool:
        return len(self.concepts) == 1


def parse_query(arguments: MemorySearch) -> MemoryQuery:
    concepts = parse_concepts(arguments.query)
    if not 1 <= arguments.limit <= ROWS_MAX:
        raise memory_error(f"limit: expected 1 to {ROWS_MAX}, got {arguments.limit}")
    if len(concepts) > 1 and (arguments.types or arguments.concepts or arguments.files):
        raise memory_error("types, concepts and files: expected a query with a single concept, got several concepts")
    for name in ("projects", "types", "concepts", "files"):
        # A blank value is a mistake of the caller: it would match nothing, or everything without a value.
        for value in getattr(arguments, name):
            if not value.strip():
                raise memory_error(f"{name}: expected non-empty strings, got {value!r}")
    date_from, date_to = parse_time_range(arguments.after, arguments.before)
    filters = ObservationFilter(
        projects=arguments.projects,
        types=arguments.types,
        concepts=arguments.concepts,
        files=arguments.files,
        date_from=date_from,
        date_to=date_to,
    )
    return MemoryQuery(concepts=concepts, mode=arguments.mode, limit=arguments.limit, filters=filters)


def parse_concepts(query: Any) -> tuple[str, ...]:
    concepts = [query] if isinstance(query, str) else query
    if not isinstance(concepts, list) or not all(isinstance(part, str) for part in concepts):
        raise memory_error("Query must be string or array")
    if isinstance(query, list) and len(query) < CONCEPTS_MIN:
        raise memory_error(_WRONG_COUNT, "Must provide at least 2 concepts for multi-concept search")
    if len(concepts) > CONCEPTS_MAX:
        raise memory_error(_WRONG_COUNT, "Cannot search more than 5 concepts at once")
    if any(len(text.strip()) < QUERY_MIN_CHARS for text in concepts):
        raise memory_error("Query must be at least 2 characters")
    return tuple(text.strip() for text in concepts)


def parse_time_range(after: Any, before: Any) -> tuple[str | None, str | None]:
    """Returns the range from the start of day `after` to the end of the day before `before`, as in a query: in the
    stored format, both inclusive."""
    start, end = (
        parse_time_bound("after", str(_parse_day("after", after))) if after is not None else None,
        _parse_day("before", before) if before is not None else None,
    )
    if end is None:
        return start, None
    if end == date.min:  # there is no day before it
        raise _date_error("before", before)
    return start, parse_time_bound("before", str(end - timedelta(days=1)), is_end=True)


def _parse_day(name: str, value: Any) -> date:
    try:
        if isinstance(value, str) and _DAY.match(value):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise _date_error(name, value)


def _date_error(name: str, value: Any) -> InvalidParams:
    detail = f"Date must be in YYYY-MM-DD format; {name}: got {str(value)[:40]!r}"
    return memory_error("Invalid date format", detail)


def parse_ids(ids: Any) -> tuple[str, ...]:
    """Returns the ids in order, without duplicates."""
    if not isinstance(ids, list) or not ids:
        detail = "" if isinstance(ids, list) else "ids: expected an array of strings"
        raise memory_error("Must provide at least 1 observation ID", detail)
    if len(ids) > IDS_MAX:
        raise memory_error("Cannot get more than 20 observations at once")
    invalid = [value for value in ids if not isinstance(value, str) or not value]
    if invalid:
        raise memory_error(BAD_ID, repr(invalid[0]))
    return tuple(dict.fromkeys(ids))


def parse_path(path: Any) -> str:
    if not isinstance(path, str) or not path.strip():
        raise memory_error("Path is required")
    return path


def parse_lines(start: int, end: int | None) -> LineRange:
    if start < 1:
        raise memory_error(BAD_LINES, f"startLine must be 1 or more, got {start}")
    if start > LINE_MAX:
        raise memory_error(BAD_LINES, f"startLine must be at most {LINE_MAX}, got {start}")
    if end is not None and end < start:
        raise memory_error(BAD_LINES, f"endLine must be startLine or more, got {end} with startLine {start}")
    return LineRange(start, LINE_MAX if end is None else min(end, LINE_MAX))
