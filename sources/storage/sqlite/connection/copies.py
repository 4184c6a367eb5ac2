"""A copy of one file of a library, made while it is in use; and the copies that are kept of a file before its schema is
changed, beside it, the newest few."""

import os
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

from config.errors import StorageError

_FILE_MODE = 0o600


def copy_database(connection: sqlite3.Connection, path: Path) -> None:
    """What a connection sees, as a file of its own, which is on the disk when this returns."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, _FILE_MODE))
    with closing(sqlite3.connect(path, isolation_level=None)) as target:
        connection.backup(target)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keep_copy(connection: sqlite3.Connection, path: Path, schema: int, copies_max: int) -> None:
    """Of a file as it is before its schema is changed, as `<name>.schema-<number>` beside it. A file of which no copy
    can be made is left as it is."""
    if not copies_max:
        return
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}.unfinished")
    try:
        copy_database(connection, unfinished)
        unfinished.replace(path.with_name(f"{path.name}.schema-{schema}"))
        for old in _copies(path)[copies_max:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        cause = error.strerror or "the disk failed"
        raise StorageError(f"the library is not upgraded, as no copy of it can be made before: {cause}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _copies(path: Path) -> list[Path]:
    """Newest schema first."""
    name = re.compile(re.escape(path.name) + r"\.schema-(\d{1,9})")
    found = [(int(match[1]), one) for one in path.parent.iterdir() if (match := name.fullmatch(one.name))]
    return [one for _, one in sorted(found, reverse=True)]
