"""Builds tsvectors from tokens. PostgreSQL's own parser is not used: it splits and stems texts differently.

A tsvector holds less than a text can: positions up to 16,383, 256 of them for a lexeme, lexemes of 2,046 bytes, and
one megabyte in all. Positions beyond the limit start again from 1, so that phrases are found there too, at the risk of
finding words that are 16,383 words apart. Positions that do not fit are left out, and then the last lexemes: words are
found longer than phrases.
"""

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from sources.text.folding import fold_bytewise, folds_bytewise
from sources.text.stemming import stem

LAST_POSITION = 16_383
POSITIONS_PER_LEXEME = 256
LEXEME_MAX_BYTES = 2_046
# A prefix is one character.
PREFIX_MAX_BYTES = 3
# PostgreSQL allows (1 << 20) - 1 bytes for lexemes and positions.
_VECTOR_MAX_BYTES = 1_000_000
# What one lexeme takes besides its text: alignment and the number of its positions.
_LEXEME_BYTES = 4
_POSITION_BYTES = 2
_FEWER_POSITIONS = (POSITIONS_PER_LEXEME, 64, 16, 4, 1)


class IndexedColumn(Struct, frozen=True):
    """The tokens of one column. `label` is A, B, C or D; `field_prefix` is put before lexemes that are found only in
    this column, if the label is not enough to tell it from others."""

    tokens: Sequence[str]
    label: str
    field_prefix: str = ""


def make_tsvector(columns: Sequence[IndexedColumn], prefix: str) -> str:
    """Returns a tsvector in its text form. `prefix` is put before each lexeme."""
    positions: dict[str, list[str]] = {}
    start = 0
    for column in columns:
        label = "" if column.label == "D" else column.label
        offsets: defaultdict[str, list[int]] = defaultdict(list)
        for offset, token in enumerate(column.tokens):
            offsets[token].append(offset)
        for token, own in offsets.items():
            places = [f"{(start + offset) % LAST_POSITION + 1}{label}" for offset in own[:POSITIONS_PER_LEXEME]]
            word = clip_lexeme(token)
            positions.setdefault(prefix + word, []).extend(places)
            if column.field_prefix:
                positions.setdefault(column.field_prefix + word, []).extend(places)
        # No phrase extends from one column to the next.
        start += len(column.tokens) + 1
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
    """Shortens a token that is too long for a lexeme with a prefix of one character."""
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
