"""Copies of one database file while it is in use, and the copies that are kept before its schema is migrated."""

import os
import re
import sqlite3
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


def save_copy_before_migration(connection: sqlite3.Connection, path: Path, schema: int, copies_max: int) -> None:
    """Saves the file as `<name>.schema-<number>` next to it and deletes all but the newest `copies_max` copies. Raises
    `StorageError` if no copy can be made, so that the file is not migrated."""
    if not copies_max:
        return
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}.unfinished")
    try:
        copy_database(connection, unfinished)
        unfinished.replace(path.with_name(f"{path.name}.schema-{schema}"))
        for old in _copies(path)[copies_max:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or "disk error"
        raise StorageError(f"the library was not upgraded because it could not be copied first: {reason}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _copies(path: Path) -> list[Path]:
    """Returns the copies of a file, newest schema first."""
    name = re.compile(re.escape(path.name) + r"\.schema-(\d{1,9})")
    copies = [(int(match[1]), other) for other in path.parent.iterdir() if (match := name.fullmatch(other.name))]
    return [copy for _, copy in sorted(copies, reverse=True)]
