"""The table of observations, the values they can be filtered by, and how they are searched."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Mapping
from posixpath import basename
from typing import Any, get_args
from uuid import uuid4

from msgspec import UNSET
from msgspec.structs import replace

from sources.drafts import ObservationDraft
from sources.records import Hit, Observation, Origin
from sources.storage.contract import ObservationFilter
from sources.storage.sqlite.schema.chacha import OBSERVATION_FIELDS, OBSERVATIONS_INDEX
from sources.storage.sqlite.search.candidates import FieldsCandidate
from sources.storage.sqlite.search.target import SearchTarget, in_values
from sources.storage.sqlite.sql import SqlFilter, SqlValue, between
from sources.storage.sqlite.vectors.kinds import OBSERVATION_VECTORS
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.item_table import (
    IndexFormColumn,
    ItemKey,
    ItemTable,
    TableColumn,
    WriteContext,
    decode_texts,
    index_form_of,
)
from sources.storage.sqlite.write.validation import FieldLimits, fold_tag, invalid_field, is_storable

_ORIGINS = get_args(Origin)
_LISTS = ("facts", "concepts", "files_read", "files_modified")
# The fields whose values each list of an `ObservationFilter` is compared with.
_FILTERED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "projects": ("project",),
    "types": ("type",),
    "concepts": ("concepts",),
    "files": ("files_read", "files_modified"),
}


def _origin(_limits: FieldLimits, field: str, value: Any) -> str:
    if value not in _ORIGINS:
        raise invalid_field(field, expected=f"one of {', '.join(_ORIGINS)}", got=repr(value))
    return str(value)


def _line_number(_limits: FieldLimits, field: str, value: Any) -> int | None:
    if value is not None and not (isinstance(value, int) and value > 0 and is_storable(value)):
        raise invalid_field(field, expected="a line number of 1 or more", got=repr(value))
    return value


class ObservationTable(ItemTable[Observation, ObservationDraft]):
    """Also stores the values that filters are compared with, in `observations_values`."""

    def insert(
        self, connection: sqlite3.Connection, draft: ObservationDraft, context: WriteContext, **columns: SqlValue
    ) -> int:
        if draft.uuid is UNSET:
            draft = replace(draft, uuid=f"obs-{uuid4().hex[:16]}")
        _require_line_order(draft)
        rowid = super().insert(connection, draft, context, **columns)
        self._link_values(connection, rowid)
        return rowid

    def update(
        self,
        connection: sqlite3.Connection,
        key: ItemKey,
        draft: ObservationDraft,
        expected_version: int | None,
        context: WriteContext,
        **columns: SqlValue,
    ) -> int:
        _require_line_order(draft)
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        connection.execute("DELETE FROM observations_values WHERE id = ?", (rowid,))
        self._link_values(connection, rowid)
        return rowid

    def _link_values(self, connection: sqlite3.Connection, rowid: int) -> None:
        observation = self.get_by_rowid(connection, rowid)
        links = {
            (name, fold_tag(value), rowid)
            for name, fields in _FILTERED_FIELDS.items()
            for field in fields
            for value in _values(observation, field)
        }
        links |= {(name, fold_tag(basename(value)), rowid) for name, value, _ in links if name == "files"}
        connection.executemany("INSERT OR IGNORE INTO observations_values VALUES (?, ?, ?)", sorted(links))


OBSERVATIONS = ObservationTable(
    table="observations",
    kind="observation",
    record=Observation,
    key="uuid",
    columns=(
        TableColumn("type", validation.required_short_text, "general"),
        TableColumn("title", validation.required_short_text, is_required=True),
        TableColumn("subtitle", validation.short_text),
        TableColumn("narrative", validation.long_text),
        *(TableColumn(name, validation.text_list, "[]", decode_texts) for name in _LISTS),
        TableColumn("project", validation.short_text),
        TableColumn("session_id", validation.short_text),
        TableColumn("origin", _origin, "client"),
        TableColumn("conversation_id", validation.optional_short_text, None),
        TableColumn("line_start", _line_number, None),
        TableColumn("line_end", _line_number, None),
    ),
    hashed_columns=("title", *OBSERVATION_FIELDS),
    # The body is joined in the same way in the view that the index reads.
    index_forms=(index_form_of("title"), IndexFormColumn("body_seg", OBSERVATION_FIELDS)),
    index=OBSERVATIONS_INDEX,
)


class ObservationCandidate(FieldsCandidate, gc=False):
    subtitle: str
    narrative: str
    facts: str

    def hit(self) -> Hit:
        text = "\n".join(part for part in (self.subtitle, self.narrative, *decode_texts(self.facts)) if part)
        return self.make_hit(text or self.title, len(text))


# Qualified, because `json_each` also has a column `type`.
_BODY = " || char(10) || ".join(f"r.{name}" for name in OBSERVATION_FIELDS)

# A control character between the values keeps a text from matching across two of them. Lists are JSON.
_LITERAL_TEXT = " || char(1) || ".join(
    f"(SELECT coalesce(group_concat(value, char(1)), '') FROM json_each(r.{name}))" if name in _LISTS else f"r.{name}"
    for name in ("title", *OBSERVATION_FIELDS)
)

OBSERVATIONS_TARGET = SearchTarget(
    table="observations",
    id_column="uuid",
    index=OBSERVATIONS_INDEX,
    weights=(2.0, 1.0),
    title_column="title",
    candidate=ObservationCandidate,
    candidate_sql=f"""
        SELECT r.uuid, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, coalesce(r.body_seg, {_BODY}), r.subtitle, r.narrative, r.facts
        FROM json_each(?) wanted CROSS JOIN observations r ON r.id = wanted.value
    """,
    literal_text=_LITERAL_TEXT,
    vectors=(OBSERVATION_VECTORS,),
)


def observation_conditions(where: ObservationFilter, rowid: str, created_at: str) -> SqlFilter | None:
    """Returns the filter as SQL conditions on these two columns, or None if no observation can match."""
    conditions = between(created_at, where.date_from, where.date_to)
    for name in _FILTERED_FIELDS:
        values: tuple[str, ...] = getattr(where, name)
        folded = [fold_tag(value) for value in values if is_storable(value)]
        if values and not folded:
            return None
        if folded:
            conditions &= in_values("observations_values", name, rowid, folded)
    return conditions


def _require_line_order(draft: ObservationDraft) -> None:
    start, end = draft.line_start, draft.line_end
    if isinstance(start, int) and isinstance(end, int) and end < start:
        raise invalid_field("line_end", expected=f"{start} (line_start) or more", got=str(end))


def _values(observation: Observation, field: str) -> tuple[str, ...]:
    value = getattr(observation, field)
    return (value,) if isinstance(value, str) else value
