"""Tables of items: how drafts become rows, and rows records. Runs inside a job, on the connection's thread."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Generic, TypeVar
from uuid import uuid4

import msgspec
from msgspec import UNSET, Struct

from config.errors import Conflict, NotFound
from sources.drafts import Bookkeeping
from sources.records import ListPage, Record
from sources.storage.sqlite.index.text_index import TextIndex, index_form
from sources.storage.sqlite.search.target import json_list
from sources.storage.sqlite.write.validation import (
    Cleaner,
    Limits,
    SqlValue,
    count,
    fold_tag,
    is_storable,
    json,
    line,
    line_or_none,
    refusal,
    tags,
    time,
    uuid,
)

R = TypeVar("R", bound=Record)
Values = dict[str, SqlValue]
Key = str | int

_HASH_HEX_CHARS = 32
# No item was changed as often; and there is room for more changes in what SQLite counts.
VERSION_MAX = 1 << 53


class Stamp(Struct, frozen=True):
    """Who changes something, and when."""

    client_id: str
    time: str


class Column(Struct, frozen=True):
    """A field of a draft and of a record: how it is cleaned, what it is when unset, how it is read back."""

    name: str
    clean: Cleaner
    default: SqlValue = ""
    decode: Callable[[Any], Any] | None = None
    is_required: bool = False


class Derived(Struct, frozen=True):
    """A field of a record alone, which SQL computes."""

    name: str
    sql: str
    decode: Callable[[Any], Any] | None = None


class Form(Struct, frozen=True):
    """A column that holds what the index needs in place of a text, which `text` makes of a row's values."""

    name: str
    text: Callable[[Mapping[str, Any]], str]


def form_of(name: str) -> Form:
    return Form(f"{name}_seg", lambda values: str(values[name]))


read_texts: Callable[[Any], tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...]).decode
read_object: Callable[[Any], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode
read_objects: Callable[[Any], tuple[dict[str, Any], ...]] = msgspec.json.Decoder(tuple[dict[str, Any], ...]).decode

_METADATA = Column("metadata", json, "{}", read_object)
_CREATED_AT = Column("created_at", time)
_BOOKKEEPING = ("uuid", "last_modified", "version", "client_id", "content_hash", "arrived")


def _maker(
    record: type[R], names: Sequence[str], decoders: Mapping[str, Callable[[Any], Any] | None]
) -> Callable[..., R]:
    """Takes the values of a row and makes a record of them. It is written out, as a dataclass's methods are, because
    that halves the time in which rows are read."""
    decoded = {f"decode_{name}": decoder for name, decoder in decoders.items() if decoder is not None}
    # Most lists are empty, and most objects: they need no decoder.
    empty = "() if {0} == '[]' else {{}} if {0} == '{{}}' else "
    values = (
        f"{name}={empty.format(name)}decode_{name}({name})" if f"decode_{name}" in decoded else f"{name}={name}"
        for name in names
    )
    source = f"lambda {', '.join(names)}: record({', '.join(values)})"
    made: Callable[..., R] = eval(source, {"record": record, **decoded})  # noqa: S307 - of names that we declare
    return made


class Items(Generic[R]):
    """One table of items. `hashed` are the columns that make the content hash, unless the collection computes it;
    `joined` brings the rows of another table that `derived` and `alive` ask."""

    def __init__(
        self,
        *,
        table: str,
        kind: str,
        record: type[R],
        key: str,
        columns: Sequence[Column],
        hashed: Sequence[str] = (),
        forms: Sequence[Form],
        index: TextIndex,
        derived: Sequence[Derived] = (),
        joined: str = "",
        alive: str = "deleted = 0",
    ) -> None:
        self.table = table
        self.kind = kind
        self.key = key
        self.index = index
        self._columns = {column.name: column for column in (*columns, _METADATA, _CREATED_AT)}
        self._defaults: Values = {column.name: column.default for column in self._columns.values()} | {"tags": "[]"}
        self._required = tuple(column.name for column in self._columns.values() if column.is_required)
        self._hashed = tuple(hashed)
        self._forms = tuple(forms)
        stored = (*self._columns, "tags", *_BOOKKEEPING)
        decoders = {one.name: one.decode for one in self._columns.values()}
        decoders |= {one.name: one.decode for one in derived} | {"tags": read_texts}
        self._made_of = _maker(record, (*stored, *(one.name for one in derived)), decoders)
        own = tuple(f"{table}.{name}" for name in stored)
        fields = ", ".join((*own, *(f"({one.sql})" for one in derived)))
        rows = f"{table} {joined}"
        self._where = where = f"FROM {rows} WHERE {alive}"
        self.live = f"SELECT {fields} {where}"
        self._by_key = f"{self.live} AND {table}.{key} = ?"
        self._by_uuid = f"{self.live} AND {table}.uuid = ?"
        self._by_number = f"SELECT {fields} FROM {rows} WHERE {table}.id = ?"
        # CROSS JOIN: SQLite keeps this order, and so that of the numbers.
        wanted = "(SELECT value AS wanted FROM json_each(?))"
        self._by_numbers = (
            f"SELECT {fields}, ({{beside}}) FROM {wanted} CROSS JOIN {table} ON {table}.id = wanted {joined}"
        )
        self._row = f"SELECT {table}.id, {', '.join(own)} {where} AND {table}.{key} = ?"
        self._row_names = ("id", *stored)
        self._number = f"SELECT id FROM {table} WHERE {key} = ?"

    # Reading

    def get(self, connection: sqlite3.Connection, key: Key) -> R:
        return self._one(connection, self._by_key, key)

    def get_by_uuid(self, connection: sqlite3.Connection, uuid: str) -> R:
        return self._one(connection, self._by_uuid, uuid)

    def first(self, connection: sqlite3.Connection, condition: str, key: Key) -> R:
        """The first live item under a condition in which the key stands as `?1`."""
        return self._one(connection, f"{self.live} AND {condition}", key)

    def select(self, connection: sqlite3.Connection, condition: str, parameters: Sequence[SqlValue]) -> list[R]:
        """All live items under a condition, in the order it says."""
        return [self.record(row) for row in connection.execute(f"{self.live} AND {condition}", parameters)]

    def _one(self, connection: sqlite3.Connection, sql: str, key: Key) -> R:
        return self.record(self._found(connection, sql, key))

    def _found(self, connection: sqlite3.Connection, sql: str, key: Key) -> tuple[Any, ...]:
        row = connection.execute(sql, (key,)).fetchone() if is_storable(key) else None
        if row is None:
            raise NotFound(self.kind, str(key))
        found: tuple[Any, ...] = row
        return found

    def made(self, connection: sqlite3.Connection, number: int) -> R:
        """The row that was just written."""
        return self.record(connection.execute(self._by_number, (number,)).fetchone())

    def page(
        self,
        connection: sqlite3.Connection,
        limit: int,
        offset: int,
        condition: str = "TRUE",
        parameters: Sequence[SqlValue] = (),
        age: str = "last_modified",
    ) -> ListPage[R]:
        """Of the live items under a condition, newest first."""
        newest = f"{self.live} AND {condition} ORDER BY {age} DESC, {self.table}.id DESC LIMIT ? OFFSET ?"
        rows = connection.execute(newest, (*parameters, count(limit), count(offset))).fetchall()
        total = connection.execute(f"SELECT count(*) {self._where} AND {condition}", parameters).fetchone()[0]
        return ListPage(tuple(self.record(row) for row in rows), total)

    def numbered(self, connection: sqlite3.Connection, numbers: Sequence[int]) -> list[R]:
        """The items with these numbers, in the order of the numbers."""
        return [item for item, _ in self.numbered_beside(connection, numbers, "NULL")]

    def numbered_beside(
        self, connection: sqlite3.Connection, numbers: Sequence[int], beside: str
    ) -> list[tuple[R, Any]]:
        """The same, each with what an expression says of its row."""
        rows = connection.execute(self._by_numbers.format(beside=beside), (json_list(numbers),)).fetchall()
        return [(self.record(row[:-1]), row[-1]) for row in rows]

    def record(self, row: Sequence[Any]) -> R:
        return self._made_of(*row)

    def row(self, connection: sqlite3.Connection, key: Key) -> dict[str, Any]:
        """The stored values of a live item, by column."""
        return dict(zip(self._row_names, self._found(connection, self._row, key), strict=True))

    def held(self, connection: sqlite3.Connection, key: Key, expected_version: int | None) -> dict[str, Any]:
        """The same, if it is of the version that somebody expects."""
        held = self.row(connection, key)
        if expected_version is not None and expected_version != held["version"]:
            raise Conflict(
                f"{self.kind} {held['uuid']!r} was changed meanwhile: it has version {held['version']}, "
                f"expected was {expected_version}",
                {"version": held["version"], "expected_version": expected_version},
            )
        return held

    # Writing

    def insert(
        self, connection: sqlite3.Connection, draft: Struct, stamp: Stamp, limits: Limits, **extra: SqlValue
    ) -> int:
        """A new row; `extra` are columns that no draft sets. The number it got."""
        values = self._defaults | extra | self._cleaned(draft, limits)
        if "uuid" not in values:
            values["uuid"] = str(uuid4())
        values["created_at"] = values["created_at"] or stamp.time
        values["last_modified"] = values["created_at"]
        values["client_id"] = stamp.client_id
        values |= _kept(draft, limits)
        self._require_all(values)
        self._complete(values)
        try:
            number = _insert(connection, self.table, values)
        except sqlite3.IntegrityError:
            raise Conflict(f"{self.kind} {values['uuid']!r} exists already") from None
        self._link_tags(connection, number, values)
        return number

    def update(
        self,
        connection: sqlite3.Connection,
        key: Key,
        draft: Struct,
        expected_version: int | None,
        stamp: Stamp,
        limits: Limits,
        **extra: SqlValue,
    ) -> int:
        """Set what the draft sets; what it leaves unset stays. The version rises by one, or to the higher one that an
        export of ours tells."""
        held = self.held(connection, key, expected_version)
        changes = self._cleaned(draft, limits) | extra
        if changes.pop("uuid", held["uuid"]) != held["uuid"]:
            raise refusal("uuid", "another one", f"none, or {held['uuid']!r}: an item keeps its own")
        after = held | changes
        self._complete(after)
        changes = {name: value for name, value in after.items() if value != held.get(name, UNSET)}
        changes |= {"version": held["version"] + 1, "last_modified": stamp.time, "client_id": stamp.client_id}
        kept = _kept(draft, limits)
        if kept and kept["version"] > held["version"]:
            changes |= kept
        _update(connection, self.table, held["id"], changes)
        if "tags" in changes:
            connection.execute(f"DELETE FROM {self.table}_tags WHERE id = ?", (held["id"],))
            self._link_tags(connection, held["id"], after)
        number: int = held["id"]
        return number

    def delete(self, connection: sqlite3.Connection, key: Key, expected_version: int | None, stamp: Stamp) -> int:
        """Hide it everywhere; it is there until it is purged."""
        held = self.held(connection, key, expected_version)
        version = held["version"] + 1
        changes: Values = {"deleted": 1, "version": version, "last_modified": stamp.time, "client_id": stamp.client_id}
        _update(connection, self.table, held["id"], changes)
        number: int = held["id"]
        return number

    def purge(self, connection: sqlite3.Connection, key: Key) -> None:
        """Remove it for good, whether or not it was deleted before."""
        connection.execute(f"DELETE FROM {self.table} WHERE id = ?", (self.number(connection, key),))

    def holds(self, connection: sqlite3.Connection, number: int, draft: Struct, limits: Limits) -> bool:
        """Whether a row has every value that the draft sets; the order of keys in an object says nothing."""
        values = self._cleaned(draft, limits)
        fields = ", ".join(values)
        row = connection.execute(f"SELECT {fields} FROM {self.table} WHERE id = ?", (number,)).fetchone()
        pairs = zip(values, row, values.values(), strict=True)
        return all(
            held == given or self._decoded(name, held) == self._decoded(name, given) for name, held, given in pairs
        )

    def _decoded(self, name: str, value: SqlValue) -> Any:
        column = self._columns.get(name)
        return value if column is None or column.decode is None else column.decode(value)

    def number(self, connection: sqlite3.Connection, key: Key) -> int:
        """The row's number, also of a deleted item."""
        number: int = self._found(connection, self._number, key)[0]
        return number

    def _cleaned(self, draft: Struct, limits: Limits) -> Values:
        values: Values = {}
        for name in draft.__struct_fields__:
            value = getattr(draft, name)
            if value is UNSET:
                continue
            if name in self._columns:
                values[name] = self._columns[name].clean(limits, name, value)
            elif name == "tags":
                values[name] = msgspec.json.encode(tags(limits, name, value)).decode()
            elif name == "uuid":
                values[name] = uuid(limits, name, value)
        return values

    def _require_all(self, values: Values) -> None:
        for name in self._required:
            if not values[name]:
                raise refusal(name, "nothing", "a text")

    def _complete(self, values: dict[str, Any]) -> None:
        """Add what is computed from the other columns."""
        if self._hashed:
            values["content_hash"] = content_hash(*(str(values[name]) for name in self._hashed))
        values.update({form.name: index_form(form.text(values)) for form in self._forms})

    def _link_tags(self, connection: sqlite3.Connection, number: int, values: Mapping[str, Any]) -> None:
        if values["tags"] == "[]":
            return
        links = [(fold_tag(tag), number) for tag in read_texts(values["tags"])]
        connection.executemany(f"INSERT INTO {self.table}_tags VALUES (?, ?)", links)


def _kept(draft: Struct, limits: Limits) -> Values:
    """What an item that comes out of an export of ours was before."""
    kept = getattr(draft, "bookkeeping", UNSET)
    if not isinstance(kept, Bookkeeping):
        return {}
    if not 1 <= kept.version <= VERSION_MAX:
        raise refusal("version", str(kept.version), f"1 to {VERSION_MAX}")
    return {
        "version": kept.version,
        "last_modified": time(limits, "last_modified", kept.last_modified),
        "client_id": line(limits, "client_id", kept.client_id),
        "arrived": line_or_none(limits, "arrived", kept.arrived),
    }


def content_hash(*parts: str) -> str:
    """Parts are told apart by a NUL, which no text here contains."""
    return sha256("\0".join(parts).encode()).hexdigest()[:_HASH_HEX_CHARS]


def _insert(connection: sqlite3.Connection, table: str, values: Values) -> int:
    cursor = connection.execute(_insert_sql(table, tuple(values)), tuple(values.values()))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


@lru_cache
def _insert_sql(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _update(connection: sqlite3.Connection, table: str, number: int, values: Values) -> None:
    assignments = ", ".join(f"{name} = ?" for name in values)
    connection.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*values.values(), number))
