"""Compiles a query expression to an FTS5 MATCH expression. Every token is quoted, so user input is never syntax."""

from collections.abc import Sequence
from functools import lru_cache

from sources.query import AllOf, AnyOf, Expression, Phrase, Prefix, Title, Without, Word


def match_text(
    expression: Expression, title: str, columns: Sequence[str] = (), phrase_columns: Sequence[str] = ()
) -> str:
    """`title` is the column of titles. `columns` restricts the whole search, `phrase_columns` restricts phrases of
    several words; all columns are searched if they are empty."""
    if isinstance(expression, Word) and not columns and not (phrase_columns and " " in expression.text):
        return _word_text(expression)  # the same in every index
    return _cached_match_text(expression, title, tuple(columns), tuple(phrase_columns))


@lru_cache(maxsize=512)
def _word_text(word: Word) -> str:
    return _join([_quote(phrase) for phrase in word.alternatives], "OR")


@lru_cache(maxsize=512)
def _cached_match_text(
    expression: Expression, title: str, columns: tuple[str, ...], phrase_columns: tuple[str, ...]
) -> str:
    """A search compiles each of its words several times in each source."""
    return _in_columns(columns, _compile(expression, title, phrase_columns))


def _compile(expression: Expression, title: str, phrase_columns: Sequence[str]) -> str:
    def compile_part(part: Expression) -> str:
        return _compile(part, title, phrase_columns)

    match expression:
        case Word(text=text):
            match = _word_text(expression)
            return _in_columns(phrase_columns, match) if " " in text else match
        case Title(word=word):
            return _in_columns((title,), _compile(word, title, ()))
        case AnyOf(parts=parts):
            return _join([compile_part(part) for part in parts], "OR")
        case AllOf(parts=parts):
            return _join([compile_part(part) for part in parts], "AND")
        case Without(keep=keep, drop=drop):
            return f"({compile_part(keep)} NOT {compile_part(drop)})"


def _in_columns(columns: Sequence[str], match: str) -> str:
    return f"{{{' '.join(columns)}}} : ({match})" if columns else match


def _join(parts: Sequence[str], operator: str) -> str:
    return parts[0] if len(parts) == 1 else f"({f' {operator} '.join(parts)})"


def _quote(phrase: Phrase | Prefix) -> str:
    text = " ".join(phrase.tokens).replace('"', '""')
    return f'"{text}"*' if isinstance(phrase, Prefix) else f'"{text}"'
