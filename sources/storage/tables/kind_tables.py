"""The tables of the kinds that have one table each: their columns, what is indexed, and the values of filters.

All of it derives from the declarations; see `sources.kinds`.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Mapping, Sequence
from functools import partial
from posixpath import basename
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, structs

from config.paths import DatabaseKind
from sources.drafts import CharacterDraft, ItemDraft, NoteDraft, ObservationDraft, PromptDraft
from sources.installed import ADDED_KINDS, TABLE_KINDS
from sources.kinds import Kind, KindField, Record
from sources.records import CHARACTER, NOTE, OBSERVATION, PROMPT, Character, Note, Observation, SavedPrompt
from sources.storage.contract import ObservationFilter
from sources.storage.tables import item_table, sql, validation
from sources.storage.tables.dialect import Dialect
from sources.storage.tables.validation import fold_tag, invalid_field, is_storable

# -- columns -----------------------------------------------------------------------------------------------------------
# How the shape of a declared field is validated, stored and read.


def _column(field: KindField) -> item_table.TableColumn:
    default = None if field.is_optional else "" if field.default is NODEFAULT else field.default
    match field.shape:
        case "line":
            validate = validation.optional_short_text if field.is_optional else validation.short_text
            if field.declared.is_required:
                validate = validation.required_short_text
            return item_table.TableColumn(field.name, validate, default, is_required=field.declared.is_required)
        case "text":
            return item_table.TableColumn(
                field.name, validation.long_text, default, is_required=field.declared.is_required
            )
        case "list":
            return item_table.TableColumn(field.name, validation.text_list, "[]", item_table.decode_texts)
        case "object":
            return item_table.TableColumn(field.name, validation.json_text, "{}", item_table.decode_object)
        case "objects":
            decode = msgspec.json.Decoder(field.type).decode
            return item_table.TableColumn(field.name, validation.json_text, "[]", decode)
        case "flag":
            return item_table.TableColumn(field.name, validation.boolean, int(bool(default)), bool)
        case "choice":
            return item_table.TableColumn(field.name, partial(validation.choice, field.choices), default)
        case "number":
            return item_table.TableColumn(field.name, partial(validation.number, field.type), default)


class IndexColumn(Struct, frozen=True):
    """A column of a full-text index: its name, the fields whose texts it joins, and whether the tags are part of it.
    The column `form` of the table has what is indexed instead, if FTS5 would produce other tokens from the text."""

    name: str
    fields: tuple[str, ...]
    form: str
    has_tags: bool = False

    def text_sql(self, dialect: Dialect) -> str:
        """The expression of the text. Lists are JSON, whose punctuation is not part of any word."""
        text = f" || {dialect.character(10)} || ".join(self.fields)
        return sql.text_with_tags_sql(text, dialect) if self.has_tags else text


def index_columns(kind: Kind) -> tuple[IndexColumn, ...]:
    title = IndexColumn(kind.title, (kind.title,), f"{kind.title}_seg")
    if kind.layout == "text":
        assert kind.content is not None
        return title, IndexColumn(kind.content, (kind.content,), f"{kind.content}_seg", has_tags=True)
    if kind.layout == "body":
        return title, IndexColumn("body", kind.searched, "body_seg")
    return title, *(
        IndexColumn(kind.tags_name if name == "tags" else name, (name,), f"{name}_seg") for name in kind.searched
    )


def indexed_sql(kind: Kind, newline: str = "char(10)", table: str = "") -> tuple[str, ...]:
    """The expressions of what the index has for a row."""
    separator = f" || {newline} || "
    # Text with tags always has an index form, so the other expression is that of a text without them.
    return tuple(
        f"coalesce({table}{column.form}, {separator.join(f'{table}{name}' for name in column.fields)})"
        for column in index_columns(kind)
    )


def text_index(kind: Kind) -> sql.TextIndex:
    return sql.TextIndex(f"{kind.source}_index", tuple(column.name for column in index_columns(kind)))


def segmented_table(kind: Kind, dialect: Dialect) -> sql.SegmentedTable:
    forms = tuple((column.form, column.text_sql(dialect)) for column in index_columns(kind))
    return sql.SegmentedTable(kind.source, forms, text_index(kind), is_counted=kind.is_source)


def segmented_tables(dialect: Dialect) -> Mapping[DatabaseKind, tuple[sql.SegmentedTable, ...]]:
    """Returns the tables whose text is segmented. Media items come before their chunks, which are indexed with their
    titles."""
    title = (("title_seg", sql.text_with_tags_sql("title", dialect)),)
    return {
        "chacha": (
            sql.SegmentedTable("conversations", title, sql.CHATS_INDEX),
            sql.SegmentedTable("messages", (("text_seg", "sender || ': ' || content"),), sql.CHATS_INDEX),
            *(segmented_table(kind, dialect) for kind in TABLE_KINDS if kind.database == "chacha"),
        ),
        "media": (
            sql.SegmentedTable("media", title, sql.MEDIA_INDEX),
            sql.SegmentedTable("chunks", (("text_seg", "text"),), sql.MEDIA_INDEX),
        ),
        "prompts": (segmented_table(PROMPT, dialect),),
    }


# The columns of every item table, as SQLite declares them; PostgreSQL has other names for the types. `arrived` is the
# import stamp (see `upsert.py`) of the draft that a row was last imported from.
ITEM_COLUMNS = (
    "uuid TEXT NOT NULL UNIQUE",
    "tags TEXT NOT NULL DEFAULT '[]'",
    "metadata TEXT NOT NULL DEFAULT '{}'",
    "created_at TEXT NOT NULL",
    "last_modified TEXT NOT NULL",
    "version INTEGER NOT NULL DEFAULT 1",
    "client_id TEXT NOT NULL",
    "content_hash TEXT NOT NULL",
    "deleted INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1))",
    "arrived TEXT",
)


def column_definitions(kind: Kind) -> tuple[str, ...]:
    """The columns of a kind's own fields and of their index forms. Long ones come last: SQLite reads a row up to the
    column that it needs."""
    fields = []
    for field in sorted(kind.fields, key=lambda field: field.shape in ("text", "list", "object", "objects")):
        default = _column(field).default
        literal = default if isinstance(default, int) else "'{}'".format(str(default).replace("'", "''"))
        column_type = "INTEGER" if field.shape in ("number", "flag") else "TEXT"
        # A column that is added to a table needs a default.
        added = f" DEFAULT {literal}" if kind.is_added else ""
        fields.append(f"{field.name} {column_type}" + ("" if default is None else f" NOT NULL{added}"))
    return (*fields, *(f"{column.form} TEXT" for column in index_columns(kind)))


class KindTable(item_table.ItemTable[item_table.RecordT, item_table.DraftT]):
    """The table of a kind, as it is declared."""

    def __init__(self, kind: Kind) -> None:
        names = (kind.title, *(field.name for field in kind.fields if field.name != kind.title), "tags")
        super().__init__(
            table=kind.source,
            kind=kind.name,
            record=kind.record,  # type: ignore[arg-type]  # a kind does not say which record it has
            key=kind.key,
            columns=[_column(field) for field in kind.fields],
            hashed_columns=kind.hashed or names,
            # The same texts are joined in the view that the index of SQLite reads.
            index_forms=[
                item_table.IndexFormColumn(column.form, column.fields, has_tags=column.has_tags)
                for column in index_columns(kind)
            ],
            index=text_index(kind),
            computed=(item_table.ComputedColumn("id", f"{kind.source}.id"),) if kind.key == "id" else (),
        )


CHARACTERS = KindTable[Character, CharacterDraft](CHARACTER)
NOTES = KindTable[Note, NoteDraft](NOTE)
PROMPTS = KindTable[SavedPrompt, PromptDraft](PROMPT)
# The tables of items that need no more than the declaration, by source: also those of other distributions.
PLAIN_TABLES: Mapping[str, item_table.ItemTable[Any, Any]] = {
    "characters": CHARACTERS,
    **{kind.source: KindTable[Record, ItemDraft](kind) for kind in ADDED_KINDS},
}


# -- filters -----------------------------------------------------------------------------------------------------------
# Conditions on items by their tags and by other folded values.


def has_tags(tags: Sequence[str], table: str, rowid: str) -> sql.SqlFilter:
    """Items that have all of the tags."""
    condition = f"{rowid} IN (SELECT id FROM {table}_tags WHERE folded = ?)"
    return sql.SqlFilter((condition,) * len(tags), tuple(fold_tag(tag) for tag in tags))


def in_values(table: str, field: str, rowid: str, folded: Sequence[str]) -> sql.SqlFilter:
    """Items with one of the values in a table of folded values such as `observations_values`."""
    condition = (
        f"{rowid} IN (SELECT id FROM {table} WHERE field = '{field}' AND folded IN ({sql.placeholders(folded)}))"
    )
    return sql.SqlFilter((condition,), tuple(folded))


# -- observation table -------------------------------------------------------------------------------------------------
# The table of observations, and the values they can be filtered by.

OBSERVATION_LISTS = frozenset(field.name for field in OBSERVATION.fields if field.shape == "list")
# The fields whose values each list of an `ObservationFilter` is compared with.
_FILTERED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "projects": ("project",),
    "types": ("type",),
    "concepts": ("concepts",),
    "files": ("files_read", "files_modified"),
}


class ObservationTable(KindTable[Observation, ObservationDraft]):
    """Also stores the values that filters are compared with, in `observations_values`."""

    def insert(
        self,
        connection: sql.SqlConnection,
        draft: ObservationDraft,
        context: item_table.WriteContext,
        **columns: sql.SqlValue,
    ) -> int:
        if draft.uuid is UNSET:
            draft = structs.replace(draft, uuid=f"obs-{uuid4().hex[:16]}")
        _require_line_order(draft)
        return super().insert(connection, draft, context, **columns)

    def update(
        self,
        connection: sql.SqlConnection,
        key: item_table.ItemKey,
        draft: ObservationDraft,
        expected_version: int | None,
        context: item_table.WriteContext,
        **columns: sql.SqlValue,
    ) -> int:
        _require_line_order(draft)
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        connection.execute(sql.Delete("observations_values", "id = ?"), (rowid,))
        self._link_values(connection, rowid, self.stored_values(connection, key))
        return rowid

    def _link(self, connection: sql.SqlConnection, rowid: int, values: Mapping[str, Any]) -> None:
        super()._link(connection, rowid, values)
        self._link_values(connection, rowid, values)

    def _link_values(self, connection: sql.SqlConnection, rowid: int, values: Mapping[str, Any]) -> None:
        links = {
            (name, fold_tag(value), rowid)
            for name, fields in _FILTERED_FIELDS.items()
            for field in fields
            for value in (item_table.decode_texts(values[field]) if field in OBSERVATION_LISTS else (values[field],))
        }
        links |= {(name, fold_tag(basename(value)), rowid) for name, value, _ in links if name == "files"}
        statement = sql.Insert("observations_values", "field, folded, id", key="*")
        connection.executemany_later(statement, sorted(links))


OBSERVATIONS = ObservationTable(OBSERVATION)


def observation_conditions(where: ObservationFilter, rowid: str, created_at: str) -> sql.SqlFilter | None:
    """Returns the filter as SQL conditions on these two columns, or None if no observation can match."""
    conditions = sql.between(created_at, where.date_from, where.date_to)
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
