"""tldw's merge: bm25 of each source is scaled to 0..1, then all hits are sorted by that score and by date.

It is computed here from the engine's ranks, because our setting `search_scoring=minmax` differs from tldw in two ways:
it rounds, which ties the best hits of all sources, and it gives a single hit 1, where the formula as written gives 0.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from msgspec import Struct

from config.paths import DatabasePaths
from sources.query import Expression
from sources.storage.search.engine import SearchTarget
from sources.storage.sqlite.search.fts5_engine import TARGETS, match_text

# From tldw; prevents a division by zero.
_EPSILON = 1e-9
_SCORE_DIGITS = 4
# Converts the bm25 ranks of one source, of which the lowest is best, to scores.
Scale = Callable[[Sequence[float]], list[float]]


class _IdColumn(Struct, frozen=True):
    """The column with the public id of a source's items."""

    file: str
    target: SearchTarget
    identity: str


_COLUMNS: Mapping[str, _IdColumn] = {
    "notes": _IdColumn("chacha", TARGETS["notes"], "r.uuid"),
    "media": _IdColumn("media", TARGETS["media"], "r.id"),
    "chats": _IdColumn("chacha", TARGETS["chats"], "c.uuid"),
    "characters": _IdColumn("chacha", TARGETS["characters"], "r.id"),
    "prompts": _IdColumn("prompts", TARGETS["prompts"], "r.id"),
}


class MinMaxHit(Struct, frozen=True):
    source: str
    id: str
    score: float
    last_modified: str


def scale_as_written(ranks: Sequence[float]) -> list[float]:
    """Applies the formula as written. If all ranks are equal, as for a single hit, it gives 0."""
    if not ranks:
        return []
    worst, best = max(ranks), min(ranks)
    return [(worst - rank) / (worst - best + _EPSILON) for rank in ranks]


def scale_rounded(ranks: Sequence[float]) -> list[float]:
    """Applies the formula as written and rounds to the precision of our scores."""
    return [round(score, _SCORE_DIGITS) for score in scale_as_written(ranks)]


def minmax_orders(
    paths: DatabasePaths, expression: Expression, depth: int, scales: Sequence[Scale]
) -> list[list[MinMaxHit]]:
    """Merges the best `depth` hits of each source, once for each scale."""
    rows = {source: _best_rows(paths, source, expression, depth) for source in _COLUMNS}
    return [_merged([hit for source in rows for hit in _scaled_hits(source, rows[source], scale)]) for scale in scales]


def _merged(hits: Iterable[MinMaxHit]) -> list[MinMaxHit]:
    newest = sorted(hits, key=lambda hit: hit.last_modified, reverse=True)
    return sorted(newest, key=lambda hit: -hit.score)


def _best_rows(paths: DatabasePaths, source: str, expression: Expression, depth: int) -> list[tuple[Any, ...]]:
    """Returns the id, rank and age of each hit, the best first."""
    column = _COLUMNS[source]
    target, table = column.target, column.target.index.table
    bm25 = f"bm25({table}, {', '.join(map(str, target.weights))})"
    sql = (
        f"SELECT {column.identity}, {bm25} AS rank, {target.age} FROM {table} {target.join} "
        f"WHERE {table} MATCH ? ORDER BY rank"
    )
    files = {"chacha": paths.chacha, "media": paths.media, "prompts": paths.prompts}
    with closing(sqlite3.connect(files[column.file])) as connection:
        rows = connection.execute(sql, (match_text(expression, target.title_column),)).fetchall()
    return _one_per_item(rows)[:depth] if target.item_bits else rows[:depth]


def _scaled_hits(source: str, rows: Sequence[tuple[Any, ...]], scale: Scale) -> Iterator[MinMaxHit]:
    for (identity, _, age), score in zip(rows, scale([rank for _, rank, _ in rows]), strict=True):
        yield MinMaxHit(source, str(identity), score, age)


def _one_per_item(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Keeps the first, and therefore best, passage of each item."""
    items: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        items.setdefault(row[0], row)
    return list(items.values())
