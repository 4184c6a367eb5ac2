"""Validates the arguments of the memory tools. The first mistake is reported with conversation-memory's own sentence;
nothing is clamped silently.
"""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from config.errors import InvalidParams
from server.protocol.schema import input_schema
from sources.reading.exchanges import LineRange
from sources.records import SemanticStatus
from sources.search.arguments import parse_time_bound
from sources.storage.contract import ObservationFilter, Ranking

# -- errors ------------------------------------------------------------------------------------------------------------
# Error messages of the memory tools. conversation-memory's clients match on these sentences; details follow them.

NOT_A_QUERY = "Query must be string or array"
TOO_SHORT = "Query must be at least 2 characters"
WRONG_COUNT = "Query array must have 2-5 items"
TOO_FEW_CONCEPTS = "Must provide at least 2 concepts for multi-concept search"
TOO_MANY_CONCEPTS = "Cannot search more than 5 concepts at once"
BAD_DATE = "Invalid date format"
DATE_FORMAT = "Date must be in YYYY-MM-DD format"
BAD_ID = "Invalid observation ID"
NO_IDS = "Must provide at least 1 observation ID"
TOO_MANY_IDS = "Cannot get more than 20 observations at once"
NO_PATH = "Path is required"
NO_FILE = "File not found"
BAD_LINES = "Invalid line range"

NO_OBSERVATIONS = "No observations found matching your query."
NO_CONVERSATIONS = "No conversations found"

_DETAIL_MAX_CHARS = 200


def memory_error(sentence: str, detail: str = "") -> InvalidParams:
    return InvalidParams(f"Error: {sentence}: {detail[:_DETAIL_MAX_CHARS]}" if detail else f"Error: {sentence}")


# -- schemas -----------------------------------------------------------------------------------------------------------
# Arguments and results of the memory tools.

Mode = Literal["vector", "text", "both"]
ResponseFormat = Literal["markdown", "json"]
ResultKind = Literal["observations", "exchanges", "conversations"]

# conversation-memory's own limits; its error messages name them (see `py`).
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


# Longer than any conversation, and a number that every storage engine can handle.
LINE_MAX = 1_000_000_000
_RANKINGS: Mapping[Mode, Ranking] = {"vector": "meaning", "text": "words", "both": "fused"}
# `date.fromisoformat` accepts other forms of ISO 8601 as well, which conversation-memory rejects.
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)


class TimeRange(Struct, frozen=True):
    # In the stored format, both inclusive.
    start: str | None = None
    end: str | None = None


class MemoryQuery(Struct, frozen=True, kw_only=True):
    """A validated search for one concept, or for several that must all match."""

    concepts: tuple[str, ...]
    mode: Mode
    limit: int
    time_range: TimeRange
    projects: tuple[str, ...]
    observation_filter: ObservationFilter

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

    @property
    def has_observation_filters(self) -> bool:
        """Whether it filters by fields that only observations have."""
        filters = self.observation_filter
        return bool(filters.types or filters.concepts or filters.files)


def parse_query(arguments: MemorySearch) -> MemoryQuery:
    concepts = parse_concepts(arguments.query)
    if not 1 <= arguments.limit <= ROWS_MAX:
        raise memory_error(f"limit: expected 1 to {ROWS_MAX}, got {arguments.limit}")
    if len(concepts) > 1 and (arguments.types or arguments.concepts or arguments.files):
        raise memory_error("types, concepts and files: expected a query with a single concept, got several concepts")
    for name in ("projects", "types", "concepts", "files"):
        # A blank value is a mistake of the caller: it would match nothing, or everything without a value.
        values = getattr(arguments, name)
        for value in values:
            if not value.strip():
                raise memory_error(f"{name}: expected non-empty strings, got {value!r}")
    time_range = parse_time_range(arguments.after, arguments.before)
    return MemoryQuery(
        concepts=concepts,
        mode=arguments.mode,
        limit=arguments.limit,
        time_range=time_range,
        projects=arguments.projects,
        observation_filter=ObservationFilter(
            projects=arguments.projects,
            types=arguments.types,
            concepts=arguments.concepts,
            files=arguments.files,
            date_from=time_range.start,
            date_to=time_range.end,
        ),
    )


def parse_concepts(query: Any) -> tuple[str, ...]:
    match query:
        case str():
            return (_parse_concept(query),)
        case list() if all(isinstance(part, str) for part in query):
            if len(query) < CONCEPTS_MIN:
                raise memory_error(WRONG_COUNT, TOO_FEW_CONCEPTS)
            if len(query) > CONCEPTS_MAX:
                raise memory_error(WRONG_COUNT, TOO_MANY_CONCEPTS)
            return tuple(_parse_concept(part) for part in query)
        case _:
            raise memory_error(NOT_A_QUERY)


def _parse_concept(text: str) -> str:
    if len(text.strip()) < QUERY_MIN_CHARS:
        raise memory_error(TOO_SHORT)
    return text.strip()


def parse_time_range(after: Any, before: Any) -> TimeRange:
    """Returns the range from the start of day `after` to the end of the day before `before`, as in a query."""
    first, end = _parse_day("after", after), _parse_day("before", before)
    if end == date.min:  # there is no day before it
        raise _date_error("before", before)
    last = end - timedelta(days=1) if end is not None else None
    return TimeRange(
        parse_time_bound("after", str(first)) if first is not None else None,
        parse_time_bound("before", str(last), is_end=True) if last is not None else None,
    )


def _parse_day(name: str, value: Any) -> date | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _DAY.match(value):
        raise _date_error(name, value)
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise _date_error(name, value) from None


def _date_error(name: str, value: Any) -> InvalidParams:
    return memory_error(BAD_DATE, f"{DATE_FORMAT}; {name}: got {str(value)[:40]!r}")


def parse_ids(ids: Any) -> tuple[str, ...]:
    """Returns the ids in order, without duplicates."""
    if not isinstance(ids, list):
        raise memory_error(NO_IDS, "ids: expected an array of strings")
    if not ids:
        raise memory_error(NO_IDS)
    if len(ids) > IDS_MAX:
        raise memory_error(TOO_MANY_IDS)
    invalid = [value for value in ids if not isinstance(value, str) or not value]
    if invalid:
        raise memory_error(BAD_ID, repr(invalid[0]))
    return tuple(dict.fromkeys(ids))


def parse_path(path: Any) -> str:
    if not isinstance(path, str) or not path.strip():
        raise memory_error(NO_PATH)
    return path


def parse_lines(start: int, end: int | None) -> LineRange:
    if not 1 <= start <= LINE_MAX:
        raise memory_error(BAD_LINES, f"startLine must be 1 or more, got {start}")
    if end is not None and end < start:
        raise memory_error(BAD_LINES, f"endLine must be startLine or more, got {end} with startLine {start}")
    return LineRange(start, LINE_MAX if end is None else min(end, LINE_MAX))
