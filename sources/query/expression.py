"""What a query means, as a closed union of frozen values. A leaf carries the index tokens it looks for, so an engine
quotes and joins and never segments; tokens are folded and not stemmed, because the index does that itself."""

from msgspec import Struct


class Phrase(Struct, frozen=True):
    """Tokens that follow one another in the index; one token is a phrase of one. `text` is how it is written."""

    text: str
    tokens: tuple[str, ...]


class Prefix(Struct, frozen=True):
    """The same, and the last token is only the beginning of one."""

    text: str
    tokens: tuple[str, ...]


class Word(Struct, frozen=True):
    """One thing looked for: it is there when any of its alternatives is."""

    text: str
    alternatives: tuple[Phrase | Prefix, ...]


class Title(Struct, frozen=True):
    """A word that counts only where it stands in an item's title."""

    word: Word


class AnyOf(Struct, frozen=True):
    """One of two or more parts, or several."""

    parts: tuple["Expression", ...]


class AllOf(Struct, frozen=True):
    """Two or more parts, each of them."""

    parts: tuple["Expression", ...]


class Without(Struct, frozen=True):
    """What `keep` finds, less what `drop` finds. There is no bare negation: it would mean the whole library."""

    keep: "Expression"
    drop: "Expression"


Expression = Word | Title | AnyOf | AllOf | Without


def render(expression: Expression) -> str:
    """The expression in the query language itself, for telling a caller how a query was read."""
    match expression:
        case Word(text=text):
            return f'"{text}"' if " " in text else text
        case Title(word=word):
            return f"title:{render(word)}"
        case AnyOf(parts=parts):
            return " OR ".join(_render_part(part) for part in parts)
        case AllOf(parts=parts):
            return " AND ".join(_render_part(part) for part in parts)
        case Without(keep=keep, drop=drop):
            return f"{_render_part(keep)} NOT {_render_part(drop)}"


def _render_part(part: Expression) -> str:
    return render(part) if isinstance(part, Word | Title) else f"({render(part)})"
