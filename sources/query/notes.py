"""Notes on the parts of a query that were not taken literally."""

from sources.query.expression import Expression, render

_NOTHING = "searched for nothing"
_NO_WORDS = "the query contains no words"
_FILTER_ONLY = "filter only, newest first"


class QueryNotes:
    """Collects the notes of one parse, each once, and renders them as the `read_as` of the response."""

    def __init__(self) -> None:
        self.is_truncated = False
        self._notes: dict[str, None] = {}

    def copy(self) -> "QueryNotes":
        notes = QueryNotes()
        notes.is_truncated = self.is_truncated
        notes._notes = dict(self._notes)
        return notes

    def add(self, note: str) -> None:
        self._notes[note] = None

    def add_truncation(self, note: str) -> None:
        self.is_truncated = True
        self.add(note)

    def read_as(self, expression: Expression | None, *, has_filters: bool) -> str | None:
        """Returns what was searched for and the notes, or None if the query was taken literally."""
        if expression is not None:
            return f"searched for {render(expression)}; {'; '.join(self._notes)}" if self._notes else None
        if has_filters:
            return "; ".join((_FILTER_ONLY, *self._notes))
        return f"{_NOTHING}; {'; '.join(self._notes) or _NO_WORDS}"


def with_filters(read_as: str) -> str:
    """Returns `read_as` of a query without words for a search that other arguments restrict."""
    return read_as.replace(_NOTHING, _FILTER_ONLY, 1).removesuffix(f"; {_NO_WORDS}")
