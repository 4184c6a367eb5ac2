"""Hostile variants of a sample, of any size: what a file of its format can contain that costs more than its size.

They follow from the structure of the sample, not from its format: each list, line, tag, table row and archive entry is
repeated, nested or replaced, so a new format gets its variants with its sample.
"""

import io
import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

from tests.sources.importers.office_files import packed

# Makes a file of about so many bytes.
Builder = Callable[[int], bytes]

_PLACEHOLDER = "placeholder of a hostile value"
_LISTS_MAX = 3
_OBJECTS_MAX = 1
_LINES_MAX = 3
_TAGS_MAX = 2
_TABLES_MAX = 3
_TAG = re.compile(rb"<[A-Za-z][^<>\s]{0,40}[^<>]{0,80}>")
_HEAD_BYTES = 300
# Markup that a careless parser searches for an end, again and again.
_OPENINGS = (b"<!--", b"<a b='", b"[[", b'"', b"```\n", b"\\", b"---\n", b" ")
_SQLITE = b"SQLite format 3\0"


class HostileVariant(Struct, frozen=True):
    name: str
    build: Builder


def hostile_variants(data: bytes) -> Iterator[HostileVariant]:
    if data.startswith(b"PK\x03\x04"):
        yield from _archive_variants(data)
    elif data.startswith(_SQLITE):
        yield from _database_variants(data)
    else:
        yield from _text_variants(data)
    for name, filler in (("0xff", b"\xff"), ("NUL", b"\0"), ("broken UTF-8", b"\xc3\xe2\x82 \xa0a\xf0\x9f")):
        yield HostileVariant(f"{name} after the start", _filled(data[:_HEAD_BYTES], filler))
    yield HostileVariant("UTF-16 without an end", _filled(b"\xff\xfe", b"a\0\n\0\x00\xd8"))


def _text_variants(data: bytes) -> Iterator[HostileVariant]:
    document = _as_json(data)
    if document is not None:
        yield from _json_variants(document)
    else:
        yield from _line_variants(data)
        yield from _tag_variants(data)
        for opening in _OPENINGS:
            yield HostileVariant(f"{opening!r} repeated", _filled(data, opening))
    yield HostileVariant("one long line", _filled(data, b"x"))
    yield HostileVariant("blank lines", _filled(data, b"\n"))
    yield HostileVariant("blank lines at the start", lambda size: b"\n" * size + data)
    yield HostileVariant("brackets", _filled(data[:_HEAD_BYTES], b"["))
    yield HostileVariant("nested objects", _filled(data[:_HEAD_BYTES], b'{"a":'))


def _filled(start: bytes, filler: bytes) -> Builder:
    return lambda size: start + filler * (size // len(filler))


# -- JSON --------------------------------------------------------------------------------------------------------------


def _as_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _json_variants(document: Any) -> Iterator[HostileVariant]:
    for path, values in islice(_lists(document, ()), _LISTS_MAX):
        label = "/".join(map(str, path)) or "the list"
        for filler in ("{}", "0", *map(json.dumps, values[:1])):
            yield HostileVariant(f"{label}: {filler[:30]} repeated", _in_json(document, path, _list_of(filler)))
        yield HostileVariant(f"{label}: nested lists", _in_json(document, path, _nested))
    for path in islice(_objects(document, ()), _OBJECTS_MAX):
        label = "/".join(map(str, path)) or "the object"
        yield HostileVariant(f"{label}: many members", _in_json(document, path, _members))
    for path in islice(_texts(document, ()), _OBJECTS_MAX):
        yield HostileVariant(f"{'/'.join(map(str, path))}: a long text", _in_json(document, path, _long_text))


def _lists(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
    if isinstance(value, list):
        yield path, value
    for key, child in _members_of(value):
        yield from _lists(child, (*path, key))


def _objects(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        yield path
    for key, child in _members_of(value):
        yield from _objects(child, (*path, key))


def _texts(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield path
    for key, child in _members_of(value):
        yield from _texts(child, (*path, key))


def _members_of(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from islice(enumerate(value), 1)


def _in_json(document: Any, path: tuple[Any, ...], build: Builder) -> Builder:
    before, _, after = json.dumps(_replaced(document, path)).partition(json.dumps(_PLACEHOLDER))
    return lambda size: before.encode() + build(size) + after.encode()


def _replaced(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return _PLACEHOLDER
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:])
    return copy


def _list_of(filler: str) -> Builder:
    return lambda size: b"[" + b",".join([filler.encode()] * (1 + size // (len(filler) + 1))) + b"]"


def _nested(size: int) -> bytes:
    return b"[" * (size // 2) + b"]" * (size // 2)


def _members(size: int) -> bytes:
    return b"{" + b",".join(b'"%x":0' % number for number in range(size // 11)) + b"}"


def _long_text(size: int) -> bytes:
    return b'"' + b"\\n- a " * (size // 6) + b'"'


# -- lines and markup --------------------------------------------------------------------------------------------------


def _line_variants(data: bytes) -> Iterator[HostileVariant]:
    lines = list(dict.fromkeys(data.splitlines(keepends=True)))
    for line in lines[:_LINES_MAX]:
        yield HostileVariant(f"line {line[:30]!r} repeated", _filled(data, line))
    # The shortest lines separate records, and make the most of them.
    for separator in sorted(lines, key=len)[:2]:
        pair = b"x\n" + separator
        yield HostileVariant(f"records between {separator[:30]!r}", _filled(data, pair))
    yield HostileVariant("the file repeated", _filled(b"", data))
    if len(lines) > 1 and _as_json(lines[0]) is not None:
        for filler in (b"{}\n", b'{"a":\n'):
            yield HostileVariant(f"line {filler!r} repeated", _filled(data, filler))
        for variant in islice(_json_variants(_as_json(lines[-1])), 4):
            yield HostileVariant(f"in a line, {variant.name}", _in_line(data, variant.build))


def _in_line(data: bytes, build: Builder) -> Builder:
    return lambda size: data + build(size) + b"\n"


def _tag_variants(data: bytes) -> Iterator[HostileVariant]:
    for tag in islice(dict.fromkeys(_TAG.findall(data)), _TAGS_MAX):
        start = data[: data.find(tag)]
        yield HostileVariant(f"{tag[:30]!r} nested", _filled(start, tag))
        yield HostileVariant(f"{tag[:30]!r} repeated before the end", _before(data, tag))


def _before(data: bytes, tag: bytes) -> Builder:
    at = data.find(tag)
    return lambda size: data[:at] + tag * (size // len(tag)) + data[at:]


# -- archives ----------------------------------------------------------------------------------------------------------


def _archive_variants(data: bytes) -> Iterator[HostileVariant]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = max(entries, key=lambda name: len(entries[name]))
    for variant in _text_variants(entries[name]):
        yield HostileVariant(f"{name}: {variant.name}", _in_archive(entries, name, variant.build))
    yield HostileVariant("a bomb", lambda size: packed({**entries, **dict.fromkeys(entries, bytes(size))}))
    yield HostileVariant("zips in zips", lambda size: _zip_in_zips(data, size))
    yield HostileVariant("many entries", lambda size: _many_entries(entries, size))
    yield HostileVariant("many empty entries", lambda size: _many_entries(dict.fromkeys(entries, b""), size))
    yield HostileVariant("one entry after the other", _filled(b"", data))


def _in_archive(entries: dict[str, bytes], name: str, build: Builder) -> Builder:
    return lambda size: _stored({**entries, name: build(size)})


def _stored(entries: dict[str, bytes]) -> bytes:
    """Packs without compression, so that the ratio is not what rejects it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file.getvalue()


def _zip_in_zips(data: bytes, size: int) -> bytes:
    inner = data
    for _ in range(20):
        inner = packed({f"{number}.zip": inner for number in range(2)} if len(inner) < size // 40 else {"a.zip": inner})
    return inner


def _many_entries(entries: dict[str, bytes], size: int) -> bytes:
    """An entry takes about 110 bytes and twice its name, whatever it contains."""
    file, number = io.BytesIO(), 0
    with zipfile.ZipFile(file, "w") as archive:
        while file.tell() < size // 2:
            number += 1
            for name, data in entries.items():
                folder, slash, base = name.rpartition("/")
                archive.writestr(f"{folder}{slash}{number} {base}" if number > 1 else name, data)
    return file.getvalue()


# -- databases ---------------------------------------------------------------------------------------------------------


def _database_variants(data: bytes) -> Iterator[HostileVariant]:
    for table in islice(_tables(data), _TABLES_MAX):
        yield HostileVariant(f"{table}: many rows", _in_database(data, table, _repeat_row))
        yield HostileVariant(f"{table}: many empty rows", _in_database(data, table, _add_empty_rows))
        yield HostileVariant(f"{table}: a long text", _in_database(data, table, _lengthen_texts))
    yield HostileVariant("no pages", _filled(data[:100], b"\0"))
    yield HostileVariant("the file repeated", _filled(b"", data))


def _tables(data: bytes) -> list[str]:
    own = "type = 'table' AND name NOT LIKE 'sqlite_%' AND rootpage > 0"
    query = f"SELECT name FROM sqlite_master WHERE {own} ORDER BY rootpage"
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        return [name for (name,) in connection.execute(query)]


def _in_database(data: bytes, table: str, change: Callable[[sqlite3.Connection, str, int], None]) -> Builder:
    def build(size: int) -> bytes:
        with TemporaryDirectory() as folder:
            path = Path(folder, "a.db")
            path.write_bytes(data)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA journal_mode = OFF")
                change(connection, table, size)
                connection.commit()
            return path.read_bytes()

    return build


def _columns(connection: sqlite3.Connection, table: str) -> tuple[list[str], set[str]]:
    """Returns the columns, and those that must be unique."""
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    unique = (
        "SELECT info.name FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS info WHERE list.[unique]"
    )
    keys = {name for (name,) in connection.execute(unique, (table,))}
    return columns, keys | {
        name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk", (table,))
    }


def _repeat_row(connection: sqlite3.Connection, table: str, size: int) -> None:
    columns, keys = _columns(connection, table)
    row = connection.execute(f"SELECT {', '.join(columns)} FROM [{table}]").fetchone()
    if row is None:
        return
    rows = size // (50 + len(repr(row)))
    values = ", ".join(_distinct(value) if column in keys else "?" for column, value in zip(columns, row, strict=True))
    kept = [value for column, value in zip(columns, row, strict=True) if column not in keys]
    _insert(connection, f"INSERT OR IGNORE INTO [{table}] ({', '.join(columns)}) SELECT {values} FROM n", rows, kept)


def _distinct(value: object) -> str:
    return "x" if isinstance(value, int) else "'hostile ' || x"


def _add_empty_rows(connection: sqlite3.Connection, table: str, size: int) -> None:
    columns, keys = _columns(connection, table)
    values = ", ".join("x" if column in keys else "''" for column in columns)
    _insert(
        connection, f"INSERT OR IGNORE INTO [{table}] ({', '.join(columns)}) SELECT {values} FROM n", size // 40, []
    )


def _insert(connection: sqlite3.Connection, statement: str, rows: int, values: list[Any]) -> None:
    numbers = f"WITH RECURSIVE n(x) AS (SELECT 1000 UNION ALL SELECT x + 1 FROM n LIMIT {rows})"
    connection.execute(f"{numbers} {statement}", values)


def _lengthen_texts(connection: sqlite3.Connection, table: str, size: int) -> None:
    columns, keys = _columns(connection, table)
    changes = ", ".join(f"[{column}] = ?1" for column in columns if column not in keys)
    if changes:
        text = "a - \n" * (size // 5 // max(1, len(columns)))
        connection.execute(f"UPDATE OR IGNORE [{table}] SET {changes}", (text,))
