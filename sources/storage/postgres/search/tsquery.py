"""Compiles a query expression to a tsquery. Every lexeme is quoted, so user input is never syntax.

The lexemes of an index begin with a letter for that index. In a compiled expression `$` takes its place, because one
expression is searched in several indexes; `for_index` replaces it.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from sources.query import AllOf, AnyOf, Expression, Phrase, Prefix, Title, Without, Word
from sources.storage.postgres.index.tsvector import clip_lexeme, index_tokens, quote_lexeme

PREFIX_MARK = "$"
# A lexeme that no index contains: tokens have no punctuation.
NOTHING = "'-'"
_LEXEME = re.compile(r"'((?:[^'\\]|''|\\\\)*)'(?::(\*?)([A-D]*))?")


class ColumnLabels(Struct, frozen=True):
    """How the columns of an index are told apart: by the label of each, or by a prefix of their own lexemes."""

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    field_prefixes: tuple[str, ...] = ()

    def restriction(self, columns: Sequence[str]) -> "Restriction":
        indexes = [self.columns.index(name) for name in columns if name in self.columns]
        if self.field_prefixes:
            return Restriction(prefixes=tuple(self.field_prefixes[index] for index in indexes))
        return Restriction(labels="".join(sorted({self.labels[index] for index in indexes})))


class Restriction(Struct, frozen=True):
    """The columns that are searched. `labels` is None for all; `prefixes` are alternatives."""

    labels: str | None = None
    prefixes: tuple[str, ...] = (PREFIX_MARK,)

    def __and__(self, other: "Restriction") -> "Restriction":
        labels = [restriction.labels for restriction in (self, other) if restriction.labels is not None]
        common = "".join(sorted(set.intersection(*map(set, labels)))) if labels else None
        narrow = [set(one.prefixes) for one in (self, other) if one.prefixes != (PREFIX_MARK,)]
        prefixes = tuple(sorted(set.intersection(*narrow))) if narrow else (PREFIX_MARK,)
        return Restriction(common, prefixes)

    @property
    def is_empty(self) -> bool:
        return self.labels == "" or not self.prefixes


EVERYWHERE = Restriction()


@lru_cache(maxsize=512)
def compile_tsquery(
    expression: Expression,
    restriction: Restriction = EVERYWHERE,
    title: Restriction = EVERYWHERE,
    phrases: Restriction = EVERYWHERE,
) -> str:
    """`restriction` applies to the whole expression, `title` to words that are searched in titles, and `phrases` to
    phrases of several words."""

    def compile_part(part: Expression) -> str:
        return compile_tsquery(part, restriction, title, phrases)

    match expression:
        case Word(text=text, alternatives=alternatives):
            where = restriction & phrases if " " in text else restriction
            return _join([_compile_phrase(phrase, where) for phrase in alternatives], "|")
        case Title(word=word):
            return compile_tsquery(word, restriction & title)
        case AnyOf(parts=parts):
            return _join([compile_part(part) for part in parts], "|")
        case AllOf(parts=parts):
            return _join([compile_part(part) for part in parts], "&")
        case Without(keep=keep, drop=drop):
            return f"({compile_part(keep)} & !{compile_part(drop)})"


@lru_cache(maxsize=512)
def for_index(match: str, prefix: str) -> str:
    return match.replace(f"'{PREFIX_MARK}", f"'{prefix}")


def with_labels(match: str, labels: str) -> str:
    """Restricts a compiled expression to columns with these labels."""

    def restrict(found: re.Match[str]) -> str:
        star, own = found[2] or "", found[3] or ""
        common = "".join(label for label in labels if not own or label in own)
        return f"'{found[1]}':{star}{common}" if common else NOTHING

    return _LEXEME.sub(restrict, match)


def _compile_phrase(phrase: Phrase | Prefix, where: Restriction) -> str:
    tokens = index_tokens(" ".join(phrase.tokens))
    if not tokens or where.is_empty:
        return NOTHING
    # What follows a lexeme: a star if words may begin with it, which only the last one of a phrase can have, and the
    # labels of the columns.
    ends = [where.labels or ""] * len(tokens)
    if isinstance(phrase, Prefix):
        ends[-1] = f"*{ends[-1]}"
    alternatives = []
    for prefix in where.prefixes:
        lexemes = [quote_lexeme(prefix + clip_lexeme(token)) for token in tokens]
        alternatives.append(
            _join([f"{lexeme}:{end}" if end else lexeme for lexeme, end in zip(lexemes, ends, strict=True)], "<->")
        )
    return _join(alternatives, "|")


def _join(parts: Sequence[str], operator: str) -> str:
    return parts[0] if len(parts) == 1 else f"({f' {operator} '.join(parts)})"
