"""SQLite files of other programs, read and never written: opened as immutable, checked for damage, and left alone where
they ask for more work than their size explains.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.files import plain_name
from sources.importers.engine.importer import FileProbe, ImportLimits

_MAGIC = b"SQLite format 3\0"
# Steps of SQLite's machine: to read a byte takes less than one, and a schema can be made that loops for ever.
_STEPS_FREE = 10_000_000
_STEPS_PER_BYTE = 20
_STEPS_AT_ONCE = 1_000_000
_CACHE_KIB = 8 * 1024
_SAFETY = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA query_only = ON",
    f"PRAGMA cache_size = -{_CACHE_KIB}",
)


def is_database(probe: FileProbe) -> bool:
    return probe.head.startswith(_MAGIC)


@contextmanager
def open_database(path: Path, limits: ImportLimits) -> Iterator[sqlite3.Connection]:
    """Whole and checked. Whatever SQLite cannot do with it raises InvalidParams."""
    _require_closed(path)
    with _opened(path, limits.line_max_bytes) as connection:
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise InvalidParams("the database: got a damaged file, expected a whole one")
        yield connection


def columns_in(path: Path, *tables: str) -> dict[str, frozenset[str]]:
    """What tables of a file look like, by which it is recognised; one that cannot be read has no columns."""
    try:
        with _opened(path, 1 << 20) as connection:
            return {table: columns_of(connection, table) for table in tables}
    except (InvalidParams, OSError):
        return dict.fromkeys(tables, frozenset())


def require_readable(path: Path) -> None:
    """InvalidParams where SQLite cannot even say what is in a file."""
    with _opened(path, 1 << 20) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """The columns that are stored. A view, or a table that computes its rows, has none: it could be endless."""
    stored = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ? COLLATE NOCASE"
    if connection.execute(stored, (table,)).fetchone() is None:
        return frozenset()
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))
    return frozenset(name.lower() for (name,) in rows)


@contextmanager
def _opened(path: Path, value_max_bytes: int) -> Iterator[sqlite3.Connection]:
    connection = None
    try:
        # An import reads each of its batches on another thread, one after the other.
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        _guard(connection, path.stat().st_size, value_max_bytes)
        yield connection
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
        raise InvalidParams(_problem(error)) from error
    finally:
        if connection is not None:
            connection.close()


def _problem(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        return "the database: got one that takes more work than its size explains, expected plain tables"
    return "the database: got something that SQLite cannot read, expected a whole file"


def _guard(connection: sqlite3.Connection, size_bytes: int, value_max_bytes: int) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_max_bytes)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.text_factory = _text
    for statement in _SAFETY:
        connection.execute(statement)
    calls_left = iter(range((_STEPS_FREE + _STEPS_PER_BYTE * size_bytes) // _STEPS_AT_ONCE))
    connection.set_progress_handler(lambda: next(calls_left, None) is None, _STEPS_AT_ONCE)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _require_closed(path: Path) -> None:
    """What a program has not yet written into the file itself would be missing without a word."""
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.is_file() and beside.stat().st_size > 0:
            raise InvalidParams(
                f"the database: got one that is in use ({plain_name(beside.name)} lies beside it), expected one that "
                "its program has closed"
            )
