"""Copies of one database file while it is in use, and the copies that are kept before its schema is migrated."""

import os
import re
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

from config.errors import StorageError

_FILE_MODE = 0o600


def copy_database(connection: sqlite3.Connection, path: Path) -> None:
    """Writes what a connection sees to a new file and flushes it to disk."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, _FILE_MODE))
    with closing(sqlite3.connect(path, isolation_level=None)) as target:
        connection.backup(target)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path | None:
    """Renames a database that is not in use, with its write-ahead log, so that another can take its place. Returns the
    new path, or None if there is no such file."""
    if not path.exists():
        # A log without its database would be applied to the file that takes its place.
        for suffix in ("-wal", "-shm"):
            _rename_if_present(path.with_name(path.name + suffix), path.with_name(f"{path.name}.lost{suffix}"))
        return None
    aside = path.with_name(f"{path.name}.replaced-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        _rename_if_present(path.with_name(path.name + suffix), aside.with_name(aside.name + suffix))
    return aside


def sync_directory(directory: Path) -> None:
    """Makes renames in the directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_if_present(path: Path, target: Path) -> None:
    with suppress(FileNotFoundError):
        path.rename(target)


def save_copy_before_migration(connection: sqlite3.Connection, path: Path, schema: int, copies_max: int) -> None:
    """Saves the file as `<name>.schema-<number>` next to it and deletes all but the newest `copies_max` copies. Raises
    `StorageError` if no copy can be made, so that the file is not migrated."""
    if not copies_max:
        return
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}.unfinished")
    try:
        copy_database(connection, unfinished)
        unfinished.replace(path.with_name(f"{path.name}.schema-{schema}"))
        for old in copies_before_migration(path)[copies_max:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or "disk error"
        raise StorageError(f"the database was not upgraded because it could not be copied first: {reason}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def copies_before_migration(path: Path) -> list[Path]:
    """Returns the copies of a file, newest schema first."""
    name = re.compile(re.escape(path.name) + r"\.schema-(\d{1,9})")
    copies = [(int(match[1]), other) for other in path.parent.iterdir() if (match := name.fullmatch(other.name))]
    return [copy for _, copy in sorted(copies, reverse=True)]
