"""Opens SQLite files of other programs read-only: as immutable, checked for damage, and with a bound on the work that a
crafted schema can cause."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.confined_files import file_status, opening_only, real_path
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import printable_name
from sources.importers.engine.limits import ImportLimits

_MAGIC = b"SQLite format 3\0"
# Steps of SQLite's virtual machine. Reading a byte takes less than one step, but a crafted schema can loop forever.
_STEPS_FREE = 10_000_000
_STEPS_PER_BYTE = 20
_STEPS_PER_CALL = 1_000_000
_CACHE_KIB = 8 * 1024
_PROBE_VALUE_MAX_BYTES = 1 << 20
_SAFETY_PRAGMAS = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA query_only = ON",
    # The process that reads the file may not create others.
    "PRAGMA temp_store = MEMORY",
    f"PRAGMA cache_size = -{_CACHE_KIB}",
)


def is_database(probe: FileProbe) -> bool:
    return probe.head.startswith(_MAGIC)


@contextmanager
def open_database(path: Path, limits: ImportLimits) -> Iterator[sqlite3.Connection]:
    """Opens a database after checking its integrity. Any SQLite error raises InvalidParams."""
    _require_closed(path)
    with _connect(path, limits.line_max_bytes) as connection:
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise InvalidParams("database is damaged")
        yield connection


def table_columns(path: Path, *tables: str) -> dict[str, frozenset[str]]:
    """Returns the columns of each table, for recognizing a file; none for a file that cannot be read."""
    try:
        with _connect(path, _PROBE_VALUE_MAX_BYTES) as connection:
            return {table: columns_of(connection, table) for table in tables}
    except (InvalidParams, OSError):
        return dict.fromkeys(tables, frozenset())


def require_readable(path: Path) -> None:
    """Raises InvalidParams if SQLite cannot read the schema."""
    with _connect(path, _PROBE_VALUE_MAX_BYTES) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Returns the stored columns of a table. Views and virtual tables have none: their rows might never end."""
    stored = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ? COLLATE NOCASE"
    if connection.execute(stored, (table,)).fetchone() is None:
        return frozenset()
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))
    return frozenset(name.lower() for (name,) in rows)


@contextmanager
def _connect(path: Path, value_max_bytes: int) -> Iterator[sqlite3.Connection]:
    connection = None
    try:
        # The import runner reads batches on different threads, one after the other.
        with opening_only(path):
            uri = f"{Path(real_path(path)).as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        _apply_guards(connection, file_status(path).st_size, value_max_bytes)
        yield connection
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
        raise InvalidParams(_problem(error)) from error
    finally:
        if connection is not None:
            connection.close()


def _problem(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        return "database takes more work to read than its size explains"
    return "database cannot be read by SQLite"


def _apply_guards(connection: sqlite3.Connection, size_bytes: int, value_max_bytes: int) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_max_bytes)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.text_factory = _decode_text
    for statement in _SAFETY_PRAGMAS:
        connection.execute(statement)
    calls_left = iter(range((_STEPS_FREE + _STEPS_PER_BYTE * size_bytes) // _STEPS_PER_CALL))
    connection.set_progress_handler(lambda: next(calls_left, None) is None, _STEPS_PER_CALL)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _require_closed(path: Path) -> None:
    """Rejects a database in use: changes that are not yet in the main file would be missing without notice."""
    for suffix in ("-wal", "-journal"):
        journal = path.with_name(path.name + suffix)
        if journal.is_file() and journal.stat().st_size > 0:
            raise InvalidParams(
                f"database is in use ({printable_name(journal.name)} exists); close the program that uses it first"
            )
