"""Compiles a query expression to a tsquery. Every lexeme is quoted, so user input is never syntax.

The lexemes of an index begin with the tenant and a letter for that index. In a compiled expression `$` takes their
place, because one expression is searched in several indexes; `for_index` replaces it by the letter and a mark for the
tenant, which the server replaces by the tenant of the transaction (`MATCH`). A query therefore cannot match an entry of
another tenant, also not by mistake.
"""

# About this package: The search itself is that of `sources.storage.search`, for both engines. Here is what it asks of
# an engine: `tsquery` compiles expressions, `tsquery_engine` selects candidates and resolves conditions that only
# Python can check, `statistics` counts terms, and `meaning` compares vectors. `exact` and `substring`
# are searches of their own, in messages only.

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from sources.query import AllOf, AnyOf, Expression, Phrase, Prefix, Title, Without, Word
from sources.storage.postgres.tables import TENANT_SETTING
from sources.text.folding import fold_bytewise, folds_bytewise
from sources.text.segmentation import stem

# -- tsvector ----------------------------------------------------------------------------------------------------------
# Builds tsvectors from tokens. PostgreSQL's own parser is not used: it splits and stems texts differently.
#
# A tsvector holds less than a text can: positions up to 16,383, 256 of them for a lexeme, lexemes of 2,046 bytes, and
# one megabyte in all. Positions beyond the limit start again from 1, so that phrases are found there too, at the risk
# of finding words that are 16,383 words apart. Positions that do not fit are left out, and then the last lexemes:
# words are found longer than phrases.

LAST_POSITION = 16_383
POSITIONS_PER_LEXEME = 256
LEXEME_MAX_BYTES = 2_046
# The tenant and two letters.
PREFIX_MAX_BYTES = 9
# PostgreSQL allows (1 << 20) - 1 bytes for lexemes and positions.
_VECTOR_MAX_BYTES = 1_000_000
# What one lexeme takes besides its text: alignment and the number of its positions.
_LEXEME_BYTES = 4
_POSITION_BYTES = 2
_FEWER_POSITIONS = (POSITIONS_PER_LEXEME, 64, 16, 4, 1)


# The tokens of a column, its label (A, B, C or D), and what is put before lexemes that are found only in this column,
# if the label is not enough to tell it from others.
IndexedColumn = tuple[Sequence[str], str, str]


def make_tsvector(columns: Iterable[IndexedColumn], prefix: str) -> str:
    positions: dict[str, list[str]] = {}
    start = 0
    for tokens, label, field_prefix in columns:
        shown_label = "" if label == "D" else label
        offsets: defaultdict[str, list[int]] = defaultdict(list)
        for offset, token in enumerate(tokens):
            offsets[token].append(offset)
        for token, own in offsets.items():
            places = [f"{(start + offset) % LAST_POSITION + 1}{shown_label}" for offset in own[:POSITIONS_PER_LEXEME]]
            word = clip_lexeme(token)
            positions.setdefault(prefix + word, []).extend(places)
            if field_prefix:
                positions.setdefault(prefix + field_prefix + word, []).extend(places)
        # No phrase extends from one column to the next.
        start += len(tokens) + 1
    for positions_max in _FEWER_POSITIONS:
        size = sum(
            len(lexeme.encode()) + _LEXEME_BYTES + _POSITION_BYTES * min(len(places), positions_max)
            for lexeme, places in positions.items()
        )
        if size <= _VECTOR_MAX_BYTES:
            return _render(positions, positions_max)
    # Even with one position each, there are too many lexemes: the first ones that fit.
    left, first = _VECTOR_MAX_BYTES, {}
    for lexeme, places in positions.items():
        left -= len(lexeme.encode()) + _LEXEME_BYTES + _POSITION_BYTES
        if left < 0:
            break
        first[lexeme] = places
    return _render(first, 1)


def clip_lexeme(token: str) -> str:
    """Shortens a token that is too long for a lexeme with its prefix."""
    if len(token) * 4 < LEXEME_MAX_BYTES:
        return token
    return token.encode()[: LEXEME_MAX_BYTES - PREFIX_MAX_BYTES].decode(errors="ignore")


def quote_lexeme(lexeme: str) -> str:
    doubled = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"


def _render(positions: dict[str, list[str]], positions_max: int) -> str:
    return " ".join(
        [f"{quote_lexeme(lexeme)}:{','.join(places[:positions_max])}" for lexeme, places in positions.items()]
    )


# -- index tokens ------------------------------------------------------------------------------------------------------
# The tokens of an index form, as FTS5's tokenizer makes them: both engines then index the same words.


def index_tokens(form: str) -> list[str]:
    """Returns the stemmed tokens of index forms, and of texts that are their own index form (see `index_form`), joined
    by spaces."""
    tokens: list[str] = []
    # Most forms fold as a whole, which is one call instead of one for each word.
    for part in [form] if folds_bytewise(form) else form.split():
        tokens += fold_bytewise(part).split() if folds_bytewise(part) else [part]
    # Long texts repeat their words.
    stems = {token: stem(token) for token in set(tokens)}
    return [stems[token] for token in tokens]


PREFIX_MARK = "$"
# No token contains it.
TENANT_MARK = "\x01"


def tsquery(expression: str = "?") -> str:
    return f"CAST(replace({expression}, chr(1), current_setting('{TENANT_SETTING}')) AS TSQUERY)"


MATCH = tsquery()
# A lexeme that no index contains: tokens have no punctuation.
NOTHING = "'-'"
_LEXEME = re.compile(r"'((?:[^'\\]|''|\\\\)*)'(?::(\*?)([A-D]*))?")


class Restriction(Struct, frozen=True):
    """The columns that are searched. `labels` is None for all; `prefixes` are alternatives."""

    labels: str | None = None
    prefixes: tuple[str, ...] = ("",)

    def __and__(self, other: "Restriction") -> "Restriction":
        labels = [restriction.labels for restriction in (self, other) if restriction.labels is not None]
        common = "".join(sorted(set.intersection(*map(set, labels)))) if labels else None
        narrow = [set(one.prefixes) for one in (self, other) if one.prefixes != ("",)]
        prefixes = tuple(sorted(set.intersection(*narrow))) if narrow else ("",)
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
        if isinstance(part, Word):
            return _compile_word(part.alternatives, restriction & phrases if " " in part.text else restriction)
        return compile_tsquery(part, restriction, title, phrases)

    match expression:
        case Word():
            return compile_part(expression)
        case Title(word=word):
            return compile_tsquery(word, restriction & title)
        case AnyOf(parts=parts):
            return _join([compile_part(part) for part in parts], "|")
        case AllOf(parts=parts):
            return _join([compile_part(part) for part in parts], "&")
        case Without(keep=keep, drop=drop):
            return f"({compile_part(keep)} & !{compile_part(drop)})"


def for_index(match: str, prefix: str) -> str:
    return match.replace(f"'{PREFIX_MARK}", f"'{TENANT_MARK}{prefix}")


def with_labels(match: str, labels: str) -> str:
    """Restricts a compiled expression to columns with these labels."""

    def restrict(found: re.Match[str]) -> str:
        star, own = found[2] or "", found[3] or ""
        common = "".join(label for label in labels if not own or label in own)
        return f"'{found[1]}':{star}{common}" if common else NOTHING

    return _LEXEME.sub(restrict, match)


def words_of(match: str) -> list[str]:
    """Returns the words of a compiled expression, each after a space, and before one unless it is only the beginning of
    a word."""
    return [f" {found[1].removeprefix(PREFIX_MARK)}{'' if found[2] else ' '}" for found in _LEXEME.finditer(match)]


# Once for all sources of a search.
@lru_cache(maxsize=512)
def _compile_word(alternatives: tuple[Phrase | Prefix, ...], where: Restriction) -> str:
    return _join([_compile_phrase(phrase, where) for phrase in alternatives], "|")


def _compile_phrase(phrase: Phrase | Prefix, where: Restriction) -> str:
    tokens = [clip_lexeme(token) for token in index_tokens(" ".join(phrase.tokens))]
    if not tokens or where.is_empty:
        return NOTHING
    # What follows a lexeme: a star if words may begin with it, which only the last one of a phrase can have, and the
    # labels of the columns.
    ends = [where.labels or ""] * len(tokens)
    if isinstance(phrase, Prefix):
        ends[-1] = f"*{ends[-1]}"
    alternatives = []
    for prefix in where.prefixes:
        lexemes = [quote_lexeme(PREFIX_MARK + prefix + token) for token in tokens]
        alternatives.append(
            _join([f"{lexeme}:{end}" if end else lexeme for lexeme, end in zip(lexemes, ends, strict=True)], "<->")
        )
    return _join(alternatives, "|")


def _join(parts: Sequence[str], operator: str) -> str:
    return parts[0] if len(parts) == 1 else f"({f' {operator} '.join(parts)})"
