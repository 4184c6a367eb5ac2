"""Validates the arguments of the memory tools. The first mistake is reported with conversation-memory's own sentence;
nothing is clamped silently."""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from msgspec import Struct

from config.errors import InvalidParams
from server.compat.conversation_memory import schemas, transcript
from server.compat.conversation_memory.transcript import memory_error
from sources.reading.exchanges import LineRange
from sources.search.arguments import parse_time_bound
from sources.storage.contract import ObservationFilter, Ranking

# Longer than any conversation, and a number that every storage engine can handle.
LINE_MAX = 1_000_000_000
_RANKINGS: Mapping[schemas.Mode, Ranking] = {"vector": "meaning", "text": "words", "both": "fused"}
# `date.fromisoformat` accepts other forms of ISO 8601 as well, which conversation-memory rejects.
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)


class TimeRange(Struct, frozen=True):
    # In the stored format, both inclusive.
    start: str | None = None
    end: str | None = None


class MemoryQuery(Struct, frozen=True, kw_only=True):
    """A validated search for one concept, or for several that must all match."""

    concepts: tuple[str, ...]
    mode: schemas.Mode
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


def parse_query(arguments: schemas.MemorySearch) -> MemoryQuery:
    concepts = parse_concepts(arguments.query)
    if not 1 <= arguments.limit <= schemas.ROWS_MAX:
        raise memory_error(f"limit: expected 1 to {schemas.ROWS_MAX}, got {arguments.limit}")
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
            if len(query) < schemas.CONCEPTS_MIN:
                raise memory_error(transcript.WRONG_COUNT, transcript.TOO_FEW_CONCEPTS)
            if len(query) > schemas.CONCEPTS_MAX:
                raise memory_error(transcript.WRONG_COUNT, transcript.TOO_MANY_CONCEPTS)
            return tuple(_parse_concept(part) for part in query)
        case _:
            raise memory_error(transcript.NOT_A_QUERY)


def _parse_concept(text: str) -> str:
    if len(text.strip()) < schemas.QUERY_MIN_CHARS:
        raise memory_error(transcript.TOO_SHORT)
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
    return memory_error(transcript.BAD_DATE, f"{transcript.DATE_FORMAT}; {name}: got {str(value)[:40]!r}")


def parse_ids(ids: Any) -> tuple[str, ...]:
    """Returns the ids in order, without duplicates."""
    if not isinstance(ids, list):
        raise memory_error(transcript.NO_IDS, "ids: expected an array of strings")
    if not ids:
        raise memory_error(transcript.NO_IDS)
    if len(ids) > schemas.IDS_MAX:
        raise memory_error(transcript.TOO_MANY_IDS)
    invalid = [value for value in ids if not isinstance(value, str) or not value]
    if invalid:
        raise memory_error(transcript.BAD_ID, repr(invalid[0]))
    return tuple(dict.fromkeys(ids))


def parse_path(path: Any) -> str:
    if not isinstance(path, str) or not path.strip():
        raise memory_error(transcript.NO_PATH)
    return path


def parse_lines(start: int, end: int | None) -> LineRange:
    if not 1 <= start <= LINE_MAX:
        raise memory_error(transcript.BAD_LINES, f"startLine must be 1 or more, got {start}")
    if end is not None and end < start:
        raise memory_error(transcript.BAD_LINES, f"endLine must be startLine or more, got {end} with startLine {start}")
    return LineRange(start, LINE_MAX if end is None else min(end, LINE_MAX))
