"""The seed's merge: bm25 of each source spread over 0 to 1, then all hits by that score and by date.

It is made here from the engine's ranks, since our own setting for it departs from the seed twice: it rounds, which ties
the best hits of all sources, and it gives a lone hit 1, where the formula as written gives it 0.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from msgspec import Struct

from config.paths import DatabasePaths
from sources.query import Expression
from sources.storage.sqlite.collections import characters, conversation_tables, media, notes, prompts
from sources.storage.sqlite.search.match_expression import match_text
from sources.storage.sqlite.search.target import Target

# The seed's own, against a division by zero.
_EPSILON = 1e-9
_SCORE_DIGITS = 4
# bm25 ranks of one source, of which the lowest is best, as scores.
Scale = Callable[[Sequence[float]], list[float]]


class _Column(Struct, frozen=True):
    """Where a source's items have the id by which they are known outside."""

    file: str
    target: Target
    identity: str


_COLUMNS: Mapping[str, _Column] = {
    "notes": _Column("chacha", notes.TARGET, "r.uuid"),
    "media": _Column("media", media.TARGET, "r.id"),
    "chats": _Column("chacha", conversation_tables.TARGET, "c.uuid"),
    "characters": _Column("chacha", characters.TARGET, "r.id"),
    "prompts": _Column("prompts", prompts.TARGET, "r.id"),
}


class SeedHit(Struct, frozen=True):
    source: str
    id: str
    score: float
    last_modified: str


def scale_as_written(ranks: Sequence[float]) -> list[float]:
    """The formula to the letter. Where all ranks are alike, as that of a lone hit is, it gives 0."""
    if not ranks:
        return []
    worst, best = max(ranks), min(ranks)
    return [(worst - rank) / (worst - best + _EPSILON) for rank in ranks]


def scale_rounded(ranks: Sequence[float]) -> list[float]:
    """The formula to the letter with as many digits as our scores have."""
    return [round(score, _SCORE_DIGITS) for score in scale_as_written(ranks)]


def seed_order(paths: DatabasePaths, expression: Expression, depth: int, scale: Scale) -> list[SeedHit]:
    """The best `depth` hits of each source, merged."""
    hits = [hit for source in _COLUMNS for hit in _scaled(paths, source, expression, depth, scale)]
    newest = sorted(hits, key=lambda hit: hit.last_modified, reverse=True)
    return sorted(newest, key=lambda hit: -hit.score)


def _scaled(paths: DatabasePaths, source: str, expression: Expression, depth: int, scale: Scale) -> Iterator[SeedHit]:
    column = _COLUMNS[source]
    target, table = column.target, column.target.index.table
    sql = (
        f"SELECT {column.identity}, {target.bm25} AS rank, {target.age} FROM {table} {target.join} "
        f"WHERE {table} MATCH ? ORDER BY rank"
    )
    files = {"chacha": paths.chacha, "media": paths.media, "prompts": paths.prompts}
    with closing(sqlite3.connect(files[column.file])) as connection:
        rows = connection.execute(sql, (match_text(expression, target.title),)).fetchall()
    best = _one_per_item(rows)[:depth] if target.item_bits else rows[:depth]
    for (identity, _, age), score in zip(best, scale([rank for _, rank, _ in best]), strict=True):
        yield SeedHit(source, str(identity), score, age)


def _one_per_item(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The first, which is the best, passage of each."""
    items: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        items.setdefault(row[0], row)
    return list(items.values())
