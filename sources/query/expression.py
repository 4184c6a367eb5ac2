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
