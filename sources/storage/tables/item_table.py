"""Tables of items: converts drafts to rows and rows to records. Runs inside a job, on the connection's thread."""

# About this package: The SQL is what SQLite and PostgreSQL both understand, after the PostgreSQL engine has translated
# a few spellings (`sources.storage.postgres.connection`). Read `item_table` first: one class writes and reads the rows
# of every kind. `kind_tables` derives the tables of most kinds from their declarations; conversations with messages,
# and media (both in `conversation_tables`) have more than one table each, and classes of their own. `upsert`
# decides what an import changes, and `thread_upsert` does so for conversations. `validation` is the only way from a
# value of a draft to a value of a row, and `sql` has what all of them share.

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

import msgspec
from msgspec import UNSET, Struct

from config.errors import Conflict, NotFound
from sources import drafts
from sources.kinds import PINNED_KEY, Record
from sources.records import ListPage
from sources.storage.contract import PERIODS_MAX, TagCount
from sources.storage.tables import sql, validation
from sources.storage.tables.validation import FieldLimits, Validator, clamp_count, invalid_field, is_storable

AnyDraft = (
    drafts.NoteDraft
    | drafts.ConversationDraft
    | drafts.MessageDraft
    | drafts.CharacterDraft
    | drafts.PromptDraft
    | drafts.MediaDraft
    | drafts.ObservationDraft
    | drafts.ItemDraft
)
RecordT = TypeVar("RecordT", bound=Record)
DraftT = TypeVar("DraftT", bound=AnyDraft)
ColumnValues = dict[str, sql.SqlValue]
ItemKey = str | int
Decoder = Callable[[Any], Any]

# Links pinned items in the table of tags, to find them without reading all rows. Folded tags have no capitals.
PINNED_LINK = "PINNED"
# 128 bits of the digest.
_HASH_HEX_CHARS = 32
# More changes than any item has seen, with room for further ones below the largest integer of SQLite.
VERSION_MAX = 1 << 53


class WriteContext(Struct, frozen=True):
    """Who writes, when, and the limits that apply."""

    client_id: str
    time: str
    limits: FieldLimits
    is_agent: bool = False


class TableColumn(Struct, frozen=True):
    """A field of both draft and record. `default` is stored if the draft leaves it unset."""

    name: str
    validate: Validator
    default: sql.SqlValue = ""
    decode: Decoder | None = None
    is_required: bool = False


class ComputedColumn(Struct, frozen=True):
    """A field of the record only, computed by SQL."""

    name: str
    sql: str
    decode: Decoder | None = None


class IndexFormColumn(Struct, frozen=True):
    """A column with the index form (see `index_form`) of one or more other columns, and of the tags if `has_tags`."""

    name: str
    columns: tuple[str, ...]
    separator: str = "\n"
    has_tags: bool = False

    def text(self, values: Mapping[str, Any]) -> str:
        text = self.separator.join([values[name] for name in self.columns])
        return sql.text_with_tags(text, values["tags"]) if self.has_tags else text


def index_form_of(column: str, *, has_tags: bool = False) -> IndexFormColumn:
    return IndexFormColumn(f"{column}_seg", (column,), has_tags=has_tags)


decode_texts: Callable[[Any], tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...]).decode
decode_object: Callable[[Any], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode
decode_objects: Callable[[Any], tuple[dict[str, Any], ...]] = msgspec.json.Decoder(tuple[dict[str, Any], ...]).decode

_METADATA = TableColumn("metadata", validation.json_text, "{}", decode_object)
_CREATED_AT = TableColumn("created_at", validation.time)
# New items get ids above the highest, so a file must not be able to use up all numbers.
PREFERRED_ID_MAX = 2**31 - 1
_BOOKKEEPING = ("uuid", "last_modified", "version", "client_id", "content_hash", "arrived")


def _compile_row_factory(
    record: type[RecordT], names: Sequence[str], decoders: Mapping[str, Decoder | None]
) -> Callable[..., RecordT]:
    """Returns a function that takes the values of a row and returns the record.

    The function is generated source, as in `dataclasses` and `namedtuple`: `lambda uuid, tags, ...: record(uuid=uuid,
    tags=decode_tags(tags), ...)`. Compared with a loop over the decoders and `record(**values)`, in Python 3.11, a note
    takes 0.5 instead of 2.4 microseconds and a message 2.2 instead of 3.7. Reading a message, SQLite included, takes
    9.4 instead of 11.4. The names are column names declared in this package.
    """
    used = {f"decode_{name}": decoder for name, decoder in decoders.items() if decoder is not None}
    # Most lists and objects are empty and need no decoder.
    empty = "() if {0} == '[]' else {{}} if {0} == '{{}}' else "
    arguments = (
        f"{name}={empty.format(name)}decode_{name}({name})" if f"decode_{name}" in used else f"{name}={name}"
        for name in names
    )
    source = f"lambda {', '.join(names)}: record({', '.join(arguments)})"
    factory: Callable[..., RecordT] = eval(source, {"record": record, **used})  # noqa: S307 - see the docstring
    return factory


class ItemTable(Generic[RecordT, DraftT]):
    """One table of items.

    `key` is the column that holds the public id: `uuid`, or `id`, which is the rowid. `hashed_columns` make the content
    hash; if there are none, the subclass computes it. `join` adds the rows of another table, to which `computed` and
    `is_live` can refer.
    """

    # Whether there is a table of tags.
    has_tags: ClassVar[bool] = True

    def __init__(
        self,
        *,
        table: str,
        kind: str,
        record: type[RecordT],
        key: str,
        columns: Sequence[TableColumn],
        hashed_columns: Sequence[str] = (),
        index_forms: Sequence[IndexFormColumn],
        index: sql.TextIndex,
        computed: Sequence[ComputedColumn] = (),
        join: str = "",
        join_condition: str = "TRUE",
        is_live: str = "deleted = 0",
    ) -> None:
        self.name = table
        self.kind = kind
        self.key = key
        self.index = index
        self._columns = {column.name: column for column in (*columns, _METADATA, _CREATED_AT)}
        # How each value of a draft becomes that of a column; other values are no columns of the table.
        self._validators: dict[str, Validator] = {"tags": validation.tag_list, "uuid": validation.uuid}
        self._validators |= {column.name: column.validate for column in self._columns.values()}
        self._defaults: ColumnValues = {column.name: column.default for column in self._columns.values()}
        self._defaults["tags"] = "[]"
        self._required = tuple(column.name for column in self._columns.values() if column.is_required)
        self._hashed = tuple(hashed_columns)
        self._index_forms = tuple(index_forms)
        self._stored = (*self._columns, "tags", *_BOOKKEEPING)
        decoders: dict[str, Decoder | None] = {column.name: column.decode for column in self._columns.values()}
        decoders |= {column.name: column.decode for column in computed} | {"tags": decode_texts}
        self._record = _compile_row_factory(record, (*self._stored, *(column.name for column in computed)), decoders)
        stored = ", ".join(f"{table}.{name}" for name in self._stored)
        selected = ", ".join((stored, *(f"({column.sql})" for column in computed)))
        rows, is_joined = f"{table} {join}", f"{join_condition} AND " if join else ""
        self._from_live = f"FROM {rows} WHERE {is_joined}{is_live}"
        self._select_live = f"SELECT {selected} {self._from_live}"
        self._select_by_rowid = f"SELECT {selected} FROM {rows} WHERE {is_joined}{table}.id = ?"
        self._select_by_rowids = (
            f"SELECT {table}.id, {selected}, ({{expression}}) FROM {{listed}} CROSS JOIN {rows} "
            f"WHERE {is_joined}{table}.id = CAST(wanted.value AS BIGINT)"
        )
        self._select_stored = f"SELECT {table}.id, {stored} {self._from_live} AND {table}.{key} = ?"
        self._insert_tags = sql.Insert(f"{table}_tags", "folded, id")
        self._select_rowid = f"SELECT id FROM {table} WHERE {key} = ?"

    # Reading

    def get(self, connection: sql.SqlConnection, key: ItemKey) -> RecordT:
        return self.get_first(connection, f"{self.name}.{self.key} = ?1", key)

    def get_by_uuid(self, connection: sql.SqlConnection, uuid: str) -> RecordT:
        return self.get_first(connection, f"{self.name}.uuid = ?1", uuid)

    def get_by_rowid(self, connection: sql.SqlConnection, rowid: int) -> RecordT:
        """Returns the item even if it is deleted; the row must exist."""
        return self._record(*connection.execute(self._select_by_rowid, (rowid,)).fetchone())

    def get_first(self, connection: sql.SqlConnection, condition: str, key: ItemKey) -> RecordT:
        """Returns the first live item that meets a condition on the key, which is the parameter `?1`."""
        return self._record(*self._fetch_one(connection, f"{self._select_live} AND {condition}", key))

    def select(
        self, connection: sql.SqlConnection, condition: str, parameters: Sequence[sql.SqlValue]
    ) -> list[RecordT]:
        """Returns the live items that meet a condition, which may end with ORDER BY and LIMIT."""
        rows = connection.execute(f"{self._select_live} AND {condition}", parameters)
        return [self._record(*row) for row in rows]

    def page(
        self,
        connection: sql.SqlConnection,
        limit: int,
        offset: int,
        condition: str = "TRUE",
        parameters: Sequence[sql.SqlValue] = (),
        order_column: str = "last_modified",
    ) -> ListPage[RecordT]:
        """Returns a page of the live items that meet a condition, newest first."""
        order = f"ORDER BY {order_column} DESC, {self.name}.id DESC LIMIT ? OFFSET ?"
        records = self.select(
            connection, f"{condition} {order}", (*parameters, clamp_count(limit), clamp_count(offset))
        )
        return ListPage(tuple(records), self.count(connection, condition, parameters))

    def count(self, connection: sql.SqlConnection, condition: str, parameters: Sequence[sql.SqlValue] = ()) -> int:
        """Returns the number of live items that meet a condition."""
        [total] = connection.execute(f"SELECT count(*) {self._from_live} AND {condition}", parameters).fetchone()
        return int(total)

    def has_column(self, name: str) -> bool:
        return name in self._columns

    def created_counts(self, connection: sql.SqlConnection, chars: int, within: str) -> dict[str, int]:
        """Counts live items by the beginning of `created_at`, the newest first."""
        # `~` sorts after every character of a time.
        statement = (
            f"SELECT substr(created_at, 1, {chars}) AS period, count(*) {self._from_live} "
            "AND created_at BETWEEN ? AND ? GROUP BY period ORDER BY period DESC LIMIT ?"
        )
        return dict(connection.execute(statement, (within, f"{within}~", PERIODS_MAX)).fetchall())

    def tag_counts(self, connection: sql.SqlConnection, limit: int) -> list[TagCount]:
        """Returns the most frequent tags of live items, each in the spelling of the newest item that has it."""
        rows = connection.execute(
            f"SELECT t.folded, count(*) AS items, max(t.id) FROM {self.name}_tags t "
            f"JOIN {self.name} ON {self.name}.id = t.id WHERE {self.name}.deleted = 0 AND t.folded <> '{PINNED_LINK}' "
            "GROUP BY t.folded ORDER BY items DESC, t.folded LIMIT ?",
            (clamp_count(limit),),
        ).fetchall()
        statement = (
            f"SELECT {self.name}.id, tags FROM {connection.dialect.listed()} CROSS JOIN {self.name} "
            f"WHERE {self.name}.id = CAST(wanted.value AS BIGINT)"
        )
        rowids = sql.json_array(list({rowid for _, _, rowid in rows}))
        tags_of = {rowid: decode_texts(tags) for rowid, tags in connection.execute(statement, (rowids,)).fetchall()}
        return [
            TagCount(next((tag for tag in tags_of[rowid] if validation.fold_tag(tag) == folded), folded), items)
            for folded, items, rowid in rows
        ]

    def get_by_rowids(self, connection: sql.SqlConnection, rowids: Sequence[int]) -> list[RecordT]:
        """Returns the items in the order of the rowids."""
        return [record for record, _ in self.get_by_rowids_with(connection, rowids, "NULL")]

    def get_by_rowids_with(
        self, connection: sql.SqlConnection, rowids: Sequence[int], expression: str
    ) -> list[tuple[RecordT, Any]]:
        """Returns the items in the order of the rowids, each with the value of an SQL expression."""
        statement = self._select_by_rowids.format(expression=expression, listed=connection.dialect.listed())
        rows = connection.execute(statement, (sql.json_array(rowids),)).fetchall()
        by_rowid = {rowid: (self._record(*columns), value) for rowid, *columns, value in rows}
        return [by_rowid[rowid] for rowid in rowids if rowid in by_rowid]

    def stored_values(self, connection: sql.SqlConnection, key: ItemKey) -> dict[str, Any]:
        """Returns the stored columns of a live item by name, including the rowid as `id`."""
        row = self._fetch_one(connection, self._select_stored, key)
        return dict(zip(("id", *self._stored), row, strict=True))

    def rowid(self, connection: sql.SqlConnection, key: ItemKey) -> int:
        """Returns the rowid of an item, even if it is deleted."""
        [rowid] = self._fetch_one(connection, self._select_rowid, key)
        return int(rowid)

    def _fetch_one(self, connection: sql.SqlConnection, statement: str, key: ItemKey) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = connection.execute(statement, (key,)).fetchone() if is_storable(key) else None
        if row is None:
            raise NotFound(self.kind, str(key))
        return row

    # Writing

    def insert(
        self, connection: sql.SqlConnection, draft: DraftT, context: WriteContext, **columns: sql.SqlValue
    ) -> int:
        """Inserts a row and returns its rowid. `columns` are those that a draft cannot set."""
        values = self._defaults | columns | self._validated(draft, context.limits)
        if "uuid" not in values:
            values["uuid"] = str(uuid4())
        values["created_at"] = created_at = str(values["created_at"] or context.time)
        values["last_modified"] = created_at
        modified = getattr(draft, "last_modified", UNSET)  # not every kind of draft has it
        if modified is not UNSET:
            # Times in the stored form can be compared as text. Nothing was modified before it was created.
            values["last_modified"] = max(created_at, validation.time(context.limits, "last_modified", modified))
        values["client_id"] = context.client_id
        values |= _exported_bookkeeping(draft, context.limits)
        preferred = getattr(draft, "preferred_id", UNSET)
        if preferred is not UNSET and 0 < preferred <= PREFERRED_ID_MAX:
            is_taken = connection.execute(f"SELECT 1 FROM {self.name} WHERE id = ?", (preferred,)).fetchone()
            if not is_taken:
                values["id"] = preferred
        for name in self._required:
            if not values[name]:
                raise invalid_field(name, expected="a non-empty string", got="nothing")
        self._add_derived_values(values)
        rowid = connection.insert_row(self.name, values)
        if rowid is None:
            # Also if the item that has the uuid is deleted: it could be restored.
            raise Conflict(f"{self.kind} {values['uuid']!r} already exists")
        self._link(connection, rowid, values)
        return rowid

    def creation_time(self, draft: DraftT, context: WriteContext) -> str:
        """Returns the creation time that `insert` stores for a valid draft."""
        if draft.created_at is UNSET:
            return context.time
        return str(_CREATED_AT.validate(context.limits, _CREATED_AT.name, draft.created_at)) or context.time

    def update(
        self,
        connection: sql.SqlConnection,
        key: ItemKey,
        draft: DraftT,
        expected_version: int | None,
        context: WriteContext,
        **columns: sql.SqlValue,
    ) -> int:
        """Stores the fields that the draft sets and returns the rowid. The version increases by one, or to the higher
        version that an export of this server recorded."""
        stored = self._require_version(connection, key, expected_version)
        changes = self._validated(draft, context.limits) | columns
        uuid = changes.pop("uuid", stored["uuid"])
        if uuid != stored["uuid"]:
            expected = f"{stored['uuid']!r} (the uuid of an item cannot change)"
            raise invalid_field("uuid", expected=expected, got=repr(uuid))
        values = stored | changes
        if "metadata" in changes and PINNED_KEY in stored["metadata"]:
            # What an import or a client writes does not know that a person pinned the item.
            kept = {PINNED_KEY: decode_object(stored["metadata"]).get(PINNED_KEY, False)}
            values["metadata"] = msgspec.json.encode({**kept, **decode_object(values["metadata"])}).decode()
        self._add_derived_values(values)
        changes = {name: value for name, value in values.items() if value != stored.get(name, UNSET)}
        changes |= {
            "version": stored["version"] + 1,
            "last_modified": context.time,
            "client_id": context.client_id,
        }
        bookkeeping = _exported_bookkeeping(draft, context.limits)
        if bookkeeping and bookkeeping["version"] > stored["version"]:
            changes |= bookkeeping
        rowid: int = stored["id"]
        connection.update_row(self.name, rowid, changes)
        if self.has_tags and ("tags" in changes or "metadata" in changes):
            connection.execute(sql.Delete(f"{self.name}_tags", "id = ?"), (rowid,))
            self._link_tags(connection, rowid, values)
        return rowid

    def set_pinned(self, connection: sql.SqlConnection, key: ItemKey, *, is_pinned: bool) -> None:
        """Changes neither the version nor the modification time: see `PINNED_KEY`."""
        stored = self.stored_values(connection, key)
        metadata = {**decode_object(stored["metadata"]), PINNED_KEY: is_pinned}
        connection.update_row(self.name, stored["id"], {"metadata": msgspec.json.encode(metadata).decode()})
        connection.execute(sql.Delete(f"{self.name}_tags", "id = ? AND folded = ?"), (stored["id"], PINNED_LINK))
        if is_pinned:
            connection.executemany_later(self._insert_tags, [(PINNED_LINK, stored["id"])])

    def delete(
        self, connection: sql.SqlConnection, key: ItemKey, expected_version: int | None, context: WriteContext
    ) -> int:
        """Marks the row as deleted and returns its rowid."""
        stored = self._require_version(connection, key, expected_version)
        rowid: int = stored["id"]
        changes: ColumnValues = {
            "deleted": 1,
            "version": stored["version"] + 1,
            "last_modified": context.time,
            "client_id": context.client_id,
        }
        connection.update_row(self.name, rowid, changes)
        return rowid

    def restore(self, connection: sql.SqlConnection, key: ItemKey, context: WriteContext) -> int:
        """Makes a deleted row visible again and returns its rowid."""
        statement = f"SELECT id, version FROM {self.name} WHERE deleted = 1 AND {self.key} = ?"
        rowid, version = self._fetch_one(connection, statement, key)
        self._require_restorable(connection, rowid)
        changes: ColumnValues = {
            "deleted": 0,
            "version": version + 1,
            "last_modified": context.time,
            "client_id": context.client_id,
        }
        connection.restore_row(self.name, rowid, changes)
        return int(rowid)

    def _require_restorable(self, connection: sql.SqlConnection, rowid: int) -> None:
        """Raises `Conflict` if another item has taken the place of a deleted one."""

    def purge(self, connection: sql.SqlConnection, key: ItemKey) -> None:
        """Removes the row, whether or not it was marked as deleted."""
        connection.delete_row(self.name, self.rowid(connection, key))

    def has_values_of(self, connection: sql.SqlConnection, rowid: int, draft: DraftT, limits: FieldLimits) -> bool:
        """Whether a row has every value that the draft sets. JSON objects are compared regardless of key order."""
        values = self._validated(draft, limits)
        row = connection.execute(f"SELECT {', '.join(values)} FROM {self.name} WHERE id = ?", (rowid,)).fetchone()
        return all(
            stored == value or self._comparable(name, stored) == self._comparable(name, value)
            for (name, value), stored in zip(values.items(), row, strict=True)
        )

    def _require_version(
        self, connection: sql.SqlConnection, key: ItemKey, expected_version: int | None
    ) -> dict[str, Any]:
        """Returns the stored values. Raises `Conflict` if the version is not the expected one."""
        stored = self.stored_values(connection, key)
        version = stored["version"]
        if expected_version is not None and expected_version != version:
            raise Conflict(
                f"{self.kind} {stored['uuid']!r} has changed: expected version {expected_version}, "
                f"found version {version}",
                {"version": version, "expected_version": expected_version},
            )
        return stored

    def _validated(self, draft: DraftT, limits: FieldLimits) -> ColumnValues:
        drafted = msgspec.structs.asdict(draft)
        if isinstance(draft, drafts.ItemDraft):
            del drafted["values"]
            unknown = next((name for name in draft.values if name not in self._columns), None)
            if unknown is not None:
                raise invalid_field(unknown, expected=f"a field of a {self.kind}", got="an unknown name")
            drafted |= draft.values
        validators = self._validators
        return {
            name: validators[name](limits, name, value)
            for name, value in drafted.items()
            if value is not UNSET and name in validators
        }

    def _comparable(self, name: str, value: sql.SqlValue) -> Any:
        column = self._columns.get(name)
        decoded: Any = value if column is None or column.decode is None else column.decode(value)
        if name == "metadata":
            return {key: one for key, one in decoded.items() if key != PINNED_KEY}
        return decoded

    def _add_derived_values(self, values: dict[str, Any]) -> None:
        if self._hashed:
            values["content_hash"] = content_hash(*[str(values[name]) for name in self._hashed])
        for column in self._index_forms:
            values[column.name] = sql.index_form(column.text(values))

    def _link(self, connection: sql.SqlConnection, rowid: int, values: Mapping[str, Any]) -> None:
        """Inserts the rows of other tables by which a new item is found."""
        if self.has_tags:
            self._link_tags(connection, rowid, values)

    def _link_tags(self, connection: sql.SqlConnection, rowid: int, values: Mapping[str, Any]) -> None:
        tags = values["tags"]
        links = [] if tags == "[]" else [(validation.fold_tag(tag), rowid) for tag in decode_texts(tags)]
        if PINNED_KEY in values["metadata"] and decode_object(values["metadata"]).get(PINNED_KEY) is True:
            links.append((PINNED_LINK, rowid))
        if links:
            connection.executemany_later(self._insert_tags, links)


def _exported_bookkeeping(draft: AnyDraft, limits: FieldLimits) -> ColumnValues:
    """Returns the version and times that an export of this server recorded for the item."""
    bookkeeping = draft.bookkeeping
    if bookkeeping is UNSET:
        return {}
    if not 1 <= bookkeeping.version <= VERSION_MAX:
        raise invalid_field("version", expected=f"1 to {VERSION_MAX}", got=str(bookkeeping.version))
    return {
        "version": bookkeeping.version,
        "last_modified": validation.time(limits, "last_modified", bookkeeping.last_modified),
        "client_id": validation.short_text(limits, "client_id", bookkeeping.client_id),
        "arrived": validation.optional_short_text(limits, "arrived", bookkeeping.arrived),
    }


def content_hash(*parts: str) -> str:
    # NUL, which no stored text contains, separates the parts.
    return sha256("\0".join(parts).encode()).hexdigest()[:_HASH_HEX_CHARS]
