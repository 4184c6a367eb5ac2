"""What is searched: an index of the file, the rows that its entries stand for, and how those become hits."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sources.records import Hit
from sources.search.scoring import Prominence
from sources.storage.contract import Search
from sources.storage.sqlite.index.text_index import TextIndex
from sources.storage.sqlite.search.counting import Counter
from sources.storage.sqlite.write.validation import fold_tag


class Filter(Struct, frozen=True):
    """Conditions that rows must meet, in SQL, and the parameters in them."""

    conditions: tuple[str, ...] = ()
    parameters: tuple[str | int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.conditions)

    def __and__(self, other: "Filter") -> "Filter":
        return Filter(self.conditions + other.conditions, self.parameters + other.parameters)

    @property
    def sql(self) -> str:
        return "".join(f" AND {condition}" for condition in self.conditions)


class Candidate(Struct, gc=False):
    """An entry that may become a hit: its row, its texts as they are counted, and what orders it among its equals."""

    row: Sequence[Any]
    prominent: str
    other: str
    chars: int
    has_title: bool
    age: str
    identity: str | int
    # Filled in by the ranking.
    bm25: float | None = None
    more_in_item: int = 0
    holds_all: bool = False
    score: float = 0.0


class Target(Struct, frozen=True):
    """A kind of hit.

    `join` reaches the rows that conditions and `age` are about. Where an item has several entries, their numbers are
    its own, followed by `item_bits` bits; the best of them is the item's hit.
    """

    index: TextIndex
    bm25: str
    title: str
    join: str
    age: str
    prominence: Prominence
    filter: Callable[[Search], Filter]
    # The numbers and ages of what a query without words lists; conditions are appended to it.
    listed: Callable[[Search], str]
    # The candidates of some entries, in the order of their numbers as given.
    candidates: Callable[[sqlite3.Connection, Sequence[int]], Sequence[Candidate]]
    hit: Callable[[Candidate, Search, Counter], Hit]
    item_bits: int = 0
    # Where a phrase must stand, if not anywhere.
    phrase_columns: tuple[str, ...] = ()


def is_filtered(search: Search) -> bool:
    """Whether a search without words asks for something."""
    return bool(
        search.tags
        or search.media_types
        or search.senders
        or search.date_from
        or search.date_to
        or search.character_id is not None
    )


def json_list(values: Sequence[int | str]) -> str:
    """For `json_each`, which makes a table of it: so a statement has one text, however many values there are."""
    return msgspec.json.encode(values).decode()


def tagged(search: Search, table: str, number: str) -> Filter:
    """Items that have all the tags."""
    condition = f"{number} IN (SELECT id FROM {table}_tags WHERE folded = ?)"  # noqa: S608 - names are constants
    return Filter((condition,) * len(search.tags), tuple(fold_tag(tag) for tag in search.tags))


def dated(search: Search, time: str) -> Filter:
    """What was made between two moments, both included."""
    found = Filter()
    if search.date_from:
        found &= Filter((f"{time} >= ?",), (search.date_from,))
    if search.date_to:
        found &= Filter((f"{time} <= ?",), (search.date_to,))
    return found


def equal(column: str, value: str | int | None) -> Filter:
    return Filter() if value is None else Filter((f"{column} = ?",), (value,))


def either(one: Filter, other: Filter) -> Filter:
    """Of two single conditions."""
    return Filter((f"({one.conditions[0]} OR {other.conditions[0]})",), one.parameters + other.parameters)


def one_of(column: str, values: Sequence[str]) -> Filter:
    """Texts that equal one of the values in any case; `casefold` is registered with each reader."""
    if not values:
        return Filter()
    marks = ", ".join("?" * len(values))
    return Filter((f"casefold({column}) IN ({marks})",), tuple(value.casefold() for value in values))
