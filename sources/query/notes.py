"""Notes on the parts of a query that were not taken literally."""

from sources.query.expression import Expression, render


class QueryNotes:
    """Collects the notes of one parse, each once, and renders them as the `read_as` of the response."""

    def __init__(self) -> None:
        self.is_truncated = False
        self._notes: dict[str, None] = {}

    def add(self, note: str) -> None:
        self._notes[note] = None

    def add_truncation(self, note: str) -> None:
        self.is_truncated = True
        self.add(note)

    def read_as(self, expression: Expression | None) -> str | None:
        """Returns what was searched for and the notes, or None if the query was taken literally."""
        if expression is None:
            return f"searched for nothing; {'; '.join(self._notes) or 'the query contains no words'}"
        return f"searched for {render(expression)}; {'; '.join(self._notes)}" if self._notes else None
