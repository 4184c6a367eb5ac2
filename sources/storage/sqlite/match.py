"""A query's expression as an FTS5 MATCH expression. Every token is quoted: nothing a person typed is syntax there."""

from collections.abc import Sequence

from sources.query import AllOf, AnyOf, Expression, Phrase, Prefix, Title, Without, Word


def match_text(expression: Expression, title: str, columns: Sequence[str] = ()) -> str:
    """`title` is the column in which titles stand; `columns` are those to look in, if not all."""
    compiled = _compile(expression, title)
    return f"{{{' '.join(columns)}}} : ({compiled})" if columns else compiled


def _compile(expression: Expression, title: str) -> str:
    match expression:
        case Word(alternatives=alternatives):
            return _joined([_quoted(phrase) for phrase in alternatives], "OR")
        case Title(word=word):
            return f"{{{title}}} : ({_compile(word, title)})"
        case AnyOf(parts=parts):
            return _joined([_compile(part, title) for part in parts], "OR")
        case AllOf(parts=parts):
            return _joined([_compile(part, title) for part in parts], "AND")
        case Without(keep=keep, drop=drop):
            return f"({_compile(keep, title)} NOT {_compile(drop, title)})"


def _joined(parts: Sequence[str], operator: str) -> str:
    return parts[0] if len(parts) == 1 else f"({f' {operator} '.join(parts)})"


def _quoted(phrase: Phrase | Prefix) -> str:
    text = " ".join(phrase.tokens).replace('"', '""')
    return f'"{text}"*' if isinstance(phrase, Prefix) else f'"{text}"'
