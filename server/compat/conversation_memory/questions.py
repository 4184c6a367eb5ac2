"""What memory tools are asked, read from arguments of any shape: the first mistake is told in the words that clients of
this contract know, and nothing is moved into a range silently.
"""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, Literal

from msgspec import Struct

from config.errors import InvalidParams
from server.compat.conversation_memory import errors
from server.compat.conversation_memory.errors import refuse
from sources.reading.exchanges import Lines
from sources.search.arguments import moment
from sources.storage.contract import ObservationFilter

Mode = Literal["vector", "text", "both"]
ResponseFormat = Literal["markdown", "json"]

QUERY_MIN_CHARS = 2
CONCEPTS_MIN = 2
CONCEPTS_MAX = 5
ROWS_MAX = 50
IDS_MAX = 20
# Far beyond any file, and a number that every engine can count to.
LINE_MAX = 1_000_000_000
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)


class Period(Struct, frozen=True):
    """Moments in the one ISO form, both included."""

    start: str | None = None
    end: str | None = None


class Recall(Struct, frozen=True, kw_only=True):
    """A search as it was read: of one concept, or of several that all have to be there."""

    concepts: tuple[str, ...]
    mode: Mode
    limit: int
    period: Period
    projects: tuple[str, ...]
    narrowing: ObservationFilter

    @property
    def is_single(self) -> bool:
        return len(self.concepts) == 1

    @property
    def is_about_observations(self) -> bool:
        """Whether it asks for what only observations have."""
        return bool(self.narrowing.types or self.narrowing.concepts or self.narrowing.files)


def read_recall(
    *,
    query: Any,
    mode: Mode,
    limit: int,
    after: Any,
    before: Any,
    projects: Sequence[str],
    types: Sequence[str],
    concepts: Sequence[str],
    files: Sequence[str],
) -> Recall:
    asked = read_concepts(query)
    if not 1 <= limit <= ROWS_MAX:
        raise refuse(f"limit: got {limit}, expected 1 to {ROWS_MAX}")
    if len(asked) > 1 and (types or concepts or files):
        raise refuse("types, concepts and files: got one of them with several concepts, expected a single concept")
    period = read_period(after, before)
    return Recall(
        concepts=asked,
        mode=mode,
        limit=limit,
        period=period,
        projects=tuple(projects),
        narrowing=ObservationFilter(
            projects=tuple(projects),
            types=tuple(types),
            concepts=tuple(concepts),
            files=tuple(files),
            date_from=period.start,
            date_to=period.end,
        ),
    )


def read_concepts(query: Any) -> tuple[str, ...]:
    match query:
        case str():
            return (_concept(query),)
        case list() if all(isinstance(part, str) for part in query):
            if len(query) < CONCEPTS_MIN:
                raise refuse(errors.WRONG_COUNT, errors.TOO_FEW_CONCEPTS)
            if len(query) > CONCEPTS_MAX:
                raise refuse(errors.WRONG_COUNT, errors.TOO_MANY_CONCEPTS)
            return tuple(_concept(part) for part in query)
        case _:
            raise refuse(errors.NOT_A_QUERY)


def _concept(text: str) -> str:
    if len(text.strip()) < QUERY_MIN_CHARS:
        raise refuse(errors.TOO_SHORT)
    return text.strip()


def read_period(after: Any, before: Any) -> Period:
    """From the first moment of one day to the last before another, as `after:` and `before:` in a query are read."""
    first, end = _day("after", after), _day("before", before)
    if end == date.min:
        raise _bad_date("before", before)
    last = end - timedelta(days=1) if end is not None else None
    return Period(
        moment("after", str(first)) if first is not None else None,
        moment("before", str(last), is_end=True) if last is not None else None,
    )


def _day(name: str, value: Any) -> date | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _DAY.match(value):
        raise _bad_date(name, value)
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise _bad_date(name, value) from None


def _bad_date(name: str, value: Any) -> InvalidParams:
    return refuse(errors.BAD_DATE, f"{errors.DATE_FORM}; {name}: got {str(value)[:40]!r}")


def read_ids(ids: Any) -> tuple[str, ...]:
    """Each once, in their order."""
    if not isinstance(ids, list):
        raise refuse(errors.NO_IDS, "ids: expected an array of strings")
    if not ids:
        raise refuse(errors.NO_IDS)
    if len(ids) > IDS_MAX:
        raise refuse(errors.TOO_MANY_IDS)
    bad = [one for one in ids if not isinstance(one, str) or not one]
    if bad:
        raise refuse(errors.BAD_ID, repr(bad[0]))
    return tuple(dict.fromkeys(ids))


def read_path(path: Any) -> str:
    if not isinstance(path, str) or not path.strip():
        raise refuse(errors.NO_PATH)
    return path


def read_lines(start: int, end: int | None) -> Lines:
    if not 1 <= start <= LINE_MAX:
        raise refuse(errors.BAD_LINES, f"startLine must be 1 or more, got {start}")
    if end is not None and end < start:
        raise refuse(errors.BAD_LINES, f"endLine must be startLine or more, got {end} with startLine {start}")
    return Lines(start, LINE_MAX if end is None else min(end, LINE_MAX))
