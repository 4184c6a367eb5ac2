"""Copies SQLite databases that other programs have open: `python -m sources.following.copy_process MAX_BYTES`. Requests
and answers are lines of JSON on two pipes.

The copy has everything that is committed, also what is still in the write-ahead log. The owner can write meanwhile: in
WAL mode a reader blocks no writer, otherwise the lock is held for one part of the file at a time. Nothing is written
next to the database. A process of its own, because POSIX locks belong to a process: reading a file that this server
itself has open would drop SQLite's locks on it.

Of a database whose tables are known, only the items that changed since the last copy are copied; see `changed_rows`.
"""

import os
import resource
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from sources.following.changed_rows import DatabasePosition, copy_changes, has_tables, measure
from sources.importers.engine.confined_files import file_status, open_file, opening_only, reading_confined_to
from sources.importers.engine.table_reader import FollowedDatabase

# How long SQLite waits for a program that writes.
_BUSY_TIMEOUT_S = 2.0
# Pages that are copied before the lock is released: 8 MiB of the usual size, which take about ten milliseconds. If the
# database changes between two steps, SQLite starts the copy again, so that smaller steps would never end.
_PAGES_PER_STEP = 2048
_STEP_PAUSE_S = 0.001
# The byte of the header with the version that is needed to write; 2 means a write-ahead log.
_WRITE_VERSION_AT = 18
_WAL = 2
# How often a database that no program had open is copied again, because it changed meanwhile.
_ATTEMPTS = 3
# What a database consists of.
_SUFFIXES = ("", "-wal", "-shm", "-journal")
# The name under which the original is attached.
_LIVE = "live"
_MEMORY_MAX_BYTES = 1 << 30


class _ChangedMeanwhile(Exception):
    """A database that no program had open changed while it was copied."""


class CopyRequest(Struct, frozen=True, kw_only=True):
    # Paths have no links, and are bytes, because a file name need not be valid UTF-8.
    source: bytes
    target: bytes
    databases: tuple[FollowedDatabase, ...] = ()  # those of which a part can be copied
    since: DatabasePosition | None = None  # of the last copy


class DatabaseCopy(Struct, frozen=True):
    position: DatabasePosition | None = None  # without one, a part cannot be copied the next time
    items: int | None = None  # how many changed; None if everything was copied
    problem: str = ""  # why nothing was copied

    @property
    def is_partial(self) -> bool:
        return self.items is not None


def _copy_part(
    source: Path, target: Path, databases: Sequence[FollowedDatabase], since: DatabasePosition | None
) -> DatabaseCopy | None:
    """Returns None if the whole database must be copied."""
    target.unlink(missing_ok=True)
    try:
        with closing(_attach(source, target)) as connection:
            # One transaction: everything that is read was committed at the same time.
            connection.execute("BEGIN")
            database = _known_database(connection, databases)
            if database is None or since is None:
                return None
            position = measure(connection, _LIVE, database, since.identity, since)
            items = copy_changes(connection, _LIVE, database, since)
            connection.execute("COMMIT")
            if items is not None:
                return DatabaseCopy(position, items)
    except sqlite3.Error:
        # A table may lack what is expected of it. What is really wrong is found by copying everything.
        pass
    target.unlink(missing_ok=True)
    return None


def _attach(source: Path, target: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(target, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY", "synchronous = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    with opening_only(*_files_of(source)):
        connection.execute(f"ATTACH ? AS {_LIVE}", (_read_only(source),))
        _read(connection, _LIVE)
    return connection


def _read(connection: sqlite3.Connection, schema: str) -> None:
    """The write-ahead log is opened when the database is first read."""
    connection.execute(f"SELECT count(*) FROM {schema}.sqlite_master").fetchone()  # noqa: S608 - two constants


def _known_database(connection: sqlite3.Connection, databases: Sequence[FollowedDatabase]) -> FollowedDatabase | None:
    return next((database for database in databases if has_tables(connection, _LIVE, database)), None)


def _read_only(path: Path) -> str:
    return f"{path.as_uri()}?mode=ro"


def _is_wal(path: Path) -> bool:
    with open_file(path) as file:
        file.seek(_WRITE_VERSION_AT)
        return file.read(1) == bytes([_WAL])


def _is_closed(path: Path) -> bool:
    """Whether no program has the database, which is in WAL mode, open."""
    try:
        file_status(_companion(path, "-shm"))
    except FileNotFoundError:
        return True
    return False


def _copy_closed(source: Path, target: Path) -> None:
    for _ in range(_ATTEMPTS):
        before = _state(source)
        for suffix in before:
            with open_file(_companion(source, suffix)) as original, _companion(target, suffix).open("wb") as copy:
                shutil.copyfileobj(original, copy)
        if _state(source) == before:
            return
        _companion(target, "-wal").unlink(missing_ok=True)
    raise _ChangedMeanwhile("it changed while it was copied")


def _state(source: Path) -> dict[str, tuple[int, int]]:
    """Returns the sizes and times of the database and of its write-ahead log, by the ends of their names."""
    state = {}
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            status = file_status(_companion(source, suffix))
            state[suffix] = (status.st_size, status.st_mtime_ns)
    return state


def _files_of(path: Path) -> list[Path]:
    return [_companion(path, suffix) for suffix in _SUFFIXES]


def _companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _answer(line: bytes) -> DatabaseCopy:
    request = msgspec.json.decode(line, type=CopyRequest)
    source, target = Path(os.fsdecode(request.source)), Path(os.fsdecode(request.target))
    try:
        with reading_confined_to([*_files_of(source), target.parent]):
            identity = str(file_status(source).st_ino)
            since = request.since if request.since is not None and request.since.identity == identity else None
            # Reading only a part blocks no writer in WAL mode only.
            live = source if _is_wal(source) and not _is_closed(source) else None
            if since is not None and live is not None:
                part = _copy_part(live, target, request.databases, since)
                if part is not None:
                    return part
            # Of a database without a log, a part is copied from a complete copy.
            whole = target if since is None or live is not None else _companion(target, "-whole")
            if _is_wal(source) and _is_closed(source):
                # SQLite would create files next to it, which its owner might not be allowed to write.
                _copy_closed(source, whole)
            else:
                with opening_only(*_files_of(source)):
                    connection = sqlite3.connect(_read_only(source), uri=True, timeout=_BUSY_TIMEOUT_S)
                    _read(connection, "main")
                with closing(connection) as original, closing(sqlite3.connect(whole)) as copy:
                    original.backup(copy, pages=-1 if _is_wal(source) else _PAGES_PER_STEP, sleep=_STEP_PAUSE_S)
            with closing(sqlite3.connect(whole)) as copy:
                # Adds what is in the log to the file, so that the copy is one file.
                copy.execute("PRAGMA journal_mode = DELETE").fetchone()
            if whole != target:
                part = _copy_part(whole, target, request.databases, since)
                if part is not None:
                    whole.unlink()
                    return part
                whole.replace(target)
            position = None
            # What cannot be measured is copied as a whole the next time, too.
            with suppress(sqlite3.Error), closing(_attach(target, Path(":memory:"))) as connection:
                database = _known_database(connection, request.databases)
                if database is not None:
                    position = measure(connection, _LIVE, database, identity)
            return DatabaseCopy(position)
    except (sqlite3.Error, OSError, _ChangedMeanwhile) as error:
        return DatabaseCopy(problem=str(error) or type(error).__name__)


if __name__ == "__main__":
    # A database from elsewhere may be made to use up memory or disk space.
    for kind, value in ((resource.RLIMIT_AS, _MEMORY_MAX_BYTES), (resource.RLIMIT_FSIZE, int(sys.argv[1]))):
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
    for request_line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(_answer(request_line)) + b"\n")
        sys.stdout.buffer.flush()
