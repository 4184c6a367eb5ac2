"""A query's expression as an FTS5 MATCH expression. Every token is quoted: nothing a person typed is syntax there."""

from collections.abc import Sequence

from sources.query import AllOf, AnyOf, Expression, Phrase, Prefix, Title, Without, Word


def match_text(
    expression: Expression, title: str, columns: Sequence[str] = (), phrase_columns: Sequence[str] = ()
) -> str:
    """`title` is the column in which titles stand; `columns` are those to look in, if not all, and `phrase_columns`
    those in which several words in a row must stand."""
    return _within(columns, _compile(expression, title, phrase_columns))


def _compile(expression: Expression, title: str, phrase_columns: Sequence[str]) -> str:
    def compiled(part: Expression) -> str:
        return _compile(part, title, phrase_columns)

    match expression:
        case Word(text=text, alternatives=alternatives):
            found = _joined([_quoted(phrase) for phrase in alternatives], "OR")
            return _within(phrase_columns, found) if " " in text else found
        case Title(word=word):
            return _within((title,), _compile(word, title, ()))
        case AnyOf(parts=parts):
            return _joined([compiled(part) for part in parts], "OR")
        case AllOf(parts=parts):
            return _joined([compiled(part) for part in parts], "AND")
        case Without(keep=keep, drop=drop):
            return f"({compiled(keep)} NOT {compiled(drop)})"


def _within(columns: Sequence[str], match: str) -> str:
    return f"{{{' '.join(columns)}}} : ({match})" if columns else match


def _joined(parts: Sequence[str], operator: str) -> str:
    return parts[0] if len(parts) == 1 else f"({f' {operator} '.join(parts)})"


def _quoted(phrase: Phrase | Prefix) -> str:
    text = " ".join(phrase.tokens).replace('"', '""')
    return f'"{text}"*' if isinstance(phrase, Prefix) else f'"{text}"'
