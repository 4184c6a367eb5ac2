"""The meaning of a query, as a closed union of frozen values.

Leaves carry the index tokens to search for, so an engine only quotes and joins them. Tokens are folded but not stemmed,
because the index stems them itself. Hashes are cached, because expressions are the keys of several caches that every
source of a search uses.
"""

from msgspec import Struct


class Phrase(Struct, frozen=True, cache_hash=True):
    """Tokens that are consecutive in the index, or a single token. `text` is how the phrase is written."""

    text: str
    tokens: tuple[str, ...]


class Prefix(Struct, frozen=True, cache_hash=True):
    """Like `Phrase`, but the last token is only the beginning of one."""

    text: str
    tokens: tuple[str, ...]


class Word(Struct, frozen=True, cache_hash=True):
    """A search term. It matches if any of its alternatives does."""

    text: str
    alternatives: tuple[Phrase | Prefix, ...]


class Title(Struct, frozen=True, cache_hash=True):
    """A word that matches only in the title of an item."""

    word: Word


class AnyOf(Struct, frozen=True, cache_hash=True):
    """Two or more parts of which at least one must match."""

    parts: tuple["Expression", ...]


class AllOf(Struct, frozen=True, cache_hash=True):
    """Two or more parts that must all match."""

    parts: tuple["Expression", ...]


class Without(Struct, frozen=True, cache_hash=True):
    """Matches what `keep` matches and `drop` does not. There is no bare negation: it would match the whole library."""

    keep: "Expression"
    drop: "Expression"


Expression = Word | Title | AnyOf | AllOf | Without


def render(expression: Expression) -> str:
    """Returns the expression in the syntax of the query language."""
    match expression:
        case Word(text=text):
            return f'"{text}"' if " " in text else text
        case Title(word=word):
            return f"title:{render(word)}"
        case AnyOf(parts=parts):
            # A Vietnamese word is searched with and without its marks, and both look the same.
            return " OR ".join(dict.fromkeys(_render_part(part) for part in parts))
        case AllOf(parts=parts):
            return " AND ".join(_render_part(part) for part in parts)
        case Without(keep=keep, drop=drop):
            return f"{_render_part(keep)} NOT {_render_part(drop)}"


def _render_part(part: Expression) -> str:
    return render(part) if isinstance(part, Word | Title) else f"({render(part)})"


# -- notes -------------------------------------------------------------------------------------------------------------
# Notes on the parts of a query that were not taken literally.

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
