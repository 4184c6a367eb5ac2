"""What was learned in sessions: found by its words as items are, and by the values that filters name.

It is no source of its own, so its words are weighed by the library's and its own together, and count for nobody else.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Mapping, Sequence
from posixpath import basename
from typing import Any, get_args
from uuid import uuid4

from msgspec import UNSET
from msgspec.structs import replace

from sources.drafts import ObservationDraft
from sources.query import ParsedQuery
from sources.records import Hit, HitPage, ListPage, Observation, Origin
from sources.search.scoring import TITLE_AND_BODY
from sources.storage.contract import ALL_OBSERVATIONS, Corpus, ObservationFilter, Search
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.index.text_index import counted_form
from sources.storage.sqlite.schema.chacha import OBSERVATION_FIELDS, OBSERVATIONS_INDEX
from sources.storage.sqlite.search.counting import Counter
from sources.storage.sqlite.search.fts_search import Ranking
from sources.storage.sqlite.search.match_expression import match_text
from sources.storage.sqlite.search.target import Candidate, Filter, Target, dated, equal, json_list, tagged
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.items import Column, Form, Items, Key, Stamp, form_of, read_texts
from sources.storage.sqlite.write.validation import Limits, fold_tag, is_storable, refusal
from sources.text.folding import fold

_ORIGINS = get_args(Origin)
_LISTS = ("facts", "concepts", "files_read", "files_modified")
# The fields of a row whose values a filter may ask for, by the filter's name.
_FILTERED: Mapping[str, tuple[str, ...]] = {
    "projects": ("project",),
    "types": ("type",),
    "concepts": ("concepts",),
    "files": ("files_read", "files_modified"),
}


def _origin(_limits: Limits, field: str, value: Any) -> str:
    if value not in _ORIGINS:
        raise refusal(field, repr(value), f"one of {', '.join(_ORIGINS)}")
    return str(value)


def _line_number(_limits: Limits, field: str, value: Any) -> int | None:
    if value is not None and not (isinstance(value, int) and value > 0 and is_storable(value)):
        raise refusal(field, repr(value), "a line number from 1")
    return value


def _body(values: Mapping[str, Any]) -> str:
    """As the schema's view joins the fields."""
    return "\n".join(values[name] for name in OBSERVATION_FIELDS)


OBSERVATIONS = Items(
    table="observations",
    kind="observation",
    record=Observation,
    key="uuid",
    columns=(
        Column("type", validation.name, "general"),
        Column("title", validation.name, is_required=True),
        Column("subtitle", validation.line),
        Column("narrative", validation.text),
        *(Column(name, validation.texts, "[]", read_texts) for name in _LISTS),
        Column("project", validation.line),
        Column("session_id", validation.line),
        Column("origin", _origin, "client"),
        Column("conversation_id", validation.line_or_none, None),
        Column("line_start", _line_number, None),
        Column("line_end", _line_number, None),
    ),
    hashed=("title", *OBSERVATION_FIELDS),
    forms=(form_of("title"), Form("body_seg", _body)),
    index=OBSERVATIONS_INDEX,
)

# `json_each` has a column `type` as well.
_OWN_BODY = " || char(10) || ".join(f"r.{name}" for name in OBSERVATION_FIELDS)
_ROWS = f"""
    SELECT r.uuid, r.title, r.title_seg, coalesce(r.body_seg, {_OWN_BODY}), r.subtitle, r.narrative, r.facts,
        r.tags, r.created_at, r.last_modified, r.version, r.content_hash
    FROM json_each(?) wanted CROSS JOIN observations r ON r.id = wanted.value
"""


def _candidates(connection: sqlite3.Connection, numbers: Sequence[int]) -> Sequence[Candidate]:
    return [
        Candidate(
            row=row,
            prominent=counted_form(row[1], row[2]),
            other=fold(row[3]),
            chars=len(row[1]) + len(row[3]),
            has_title=True,
            age=row[9],
            identity=row[0],
        )
        for row in connection.execute(_ROWS, (json_list(numbers),))
    ]


def _hit(found: Candidate, _search: Search, _counter: Counter) -> Hit:
    uuid, title, _, _, subtitle, narrative, facts, tags, created_at, last_modified, version, content_hash = found.row
    text = "\n".join(part for part in (subtitle, narrative, *read_texts(facts)) if part)
    return Hit(
        id=uuid,
        title=title,
        text=text or title,
        score=found.score,
        bm25=found.bm25,
        created_at=created_at,
        last_modified=last_modified,
        version=version,
        tags=read_texts(tags),
        content_hash=content_hash,
        item_chars=len(text),
    )


def _filter(search: Search) -> Filter:
    return tagged(search, "observations", "r.id") & dated(search, "r.created_at") & equal("r.uuid", search.within)


TARGET = Target(
    index=OBSERVATIONS_INDEX,
    bm25="bm25(observations_index, 2.0, 1.0)",
    title="title",
    join="CROSS JOIN observations r ON r.id = observations_index.rowid",
    age="r.last_modified",
    prominence=TITLE_AND_BODY,
    filter=_filter,
    listed=lambda _search: "SELECT r.id AS number, r.last_modified AS age FROM observations r WHERE r.deleted = 0",
    candidates=_candidates,
    hit=_hit,
)


class SqliteObservations(SqliteItemCollection[Observation, ObservationDraft, str]):
    source = "observations"
    target = TARGET
    items = OBSERVATIONS

    async def search(self, search: Search, where: ObservationFilter = ALL_OBSERVATIONS) -> HitPage:
        narrowed = _narrowed(where, "r.id", "r.created_at")
        if search.query.expression is None or narrowed is None:
            return HitPage((), has_more=False, total=0)
        target = replace(TARGET, filter=lambda asked: _filter(asked) & narrowed)

        def work(connection: JobConnection) -> HitPage:
            weighed = replace(search, corpus=self._corpus(connection, search.query, search.corpus))
            statistics, ranked_rows_max = self._database.statistics, self._settings.ranked_rows_max
            return Ranking(connection, target, weighed, statistics, ranked_rows_max).find()

        return await self._read(work, search.deadline_ms)

    async def get_many(self, observation_ids: Sequence[str]) -> Sequence[Observation]:
        asked = [key for key in dict.fromkeys(observation_ids) if is_storable(key)]
        marks = ", ".join("?" * len(asked))

        def work(connection: sqlite3.Connection) -> Sequence[Observation]:
            found = {row.uuid: row for row in self.items.select(connection, f"uuid IN ({marks})", asked)}
            return [found[key] for key in asked if key in found]

        return await self._read(work)

    async def list(self, limit: int, offset: int, where: ObservationFilter = ALL_OBSERVATIONS) -> ListPage[Observation]:
        narrowed = _narrowed(where, "id", "created_at")
        if narrowed is None:
            return ListPage((), 0)
        condition = " AND ".join(("TRUE", *narrowed.conditions))
        return await self._read(
            lambda connection: self.items.page(connection, limit, offset, condition, narrowed.parameters, "created_at")
        )

    def _insert(
        self, connection: sqlite3.Connection, draft: ObservationDraft, stamp: Stamp, **extra: validation.SqlValue
    ) -> int:
        if draft.uuid is UNSET:
            draft = replace(draft, uuid=f"obs-{uuid4().hex[:16]}")
        _require_lines_in_order(draft)
        number = super()._insert(connection, draft, stamp, **extra)
        _link(connection, number, self.items.made(connection, number))
        return number

    def _change(
        self,
        connection: sqlite3.Connection,
        key: Key,
        draft: ObservationDraft,
        expected_version: int | None,
        stamp: Stamp,
        **extra: validation.SqlValue,
    ) -> int:
        _require_lines_in_order(draft)
        number = super()._change(connection, key, draft, expected_version, stamp, **extra)
        connection.execute("DELETE FROM observations_values WHERE id = ?", (number,))
        _link(connection, number, self.items.made(connection, number))
        return number

    def _corpus(self, connection: JobConnection, query: ParsedQuery, counted: Corpus | None) -> Corpus:
        """How common the words are in the library and among observations."""
        statistics = self._database.statistics
        corpus = counted or statistics.corpus(query, connection)
        table = OBSERVATIONS_INDEX.table
        rows = statistics.count(connection, f"SELECT count(*) FROM {table}_docsize", ())
        words = [match_text(term.word, "") for term in query.terms]
        own = [statistics.matches(connection, OBSERVATIONS_INDEX, word) for word in words]
        return Corpus(corpus.rows + rows, tuple(map(sum, zip(corpus.frequencies, own, strict=True))))


def _require_lines_in_order(draft: ObservationDraft) -> None:
    start, end = draft.line_start, draft.line_end
    if isinstance(start, int) and isinstance(end, int) and end < start:
        raise refusal("line_end", str(end), f"{start}, which is line_start, or more")


def _link(connection: sqlite3.Connection, number: int, observation: Observation) -> None:
    links = {
        (name, fold_tag(value), number)
        for name, fields in _FILTERED.items()
        for field in fields
        for value in _values(observation, field)
    }
    links |= {(name, fold_tag(basename(value)), number) for name, value, _ in links if name == "files"}
    connection.executemany("INSERT OR IGNORE INTO observations_values VALUES (?, ?, ?)", sorted(links))


def _values(observation: Observation, field: str) -> tuple[str, ...]:
    value = getattr(observation, field)
    return (value,) if isinstance(value, str) else value


def _narrowed(where: ObservationFilter, number: str, time: str) -> Filter | None:
    """Nothing where no observation can pass it."""
    found = Filter()
    for name in _FILTERED:
        asked = getattr(where, name)
        values = [fold_tag(value) for value in asked if is_storable(value)]
        if asked and not values:
            return None
        if values:
            marks = ", ".join("?" * len(values))
            sql = f"{number} IN (SELECT id FROM observations_values WHERE field = '{name}' AND folded IN ({marks}))"
            found &= Filter((sql,), tuple(values))
    if where.date_from:
        found &= Filter((f"{time} >= ?",), (where.date_from,))
    if where.date_to:
        found &= Filter((f"{time} <= ?",), (where.date_to,))
    return found
