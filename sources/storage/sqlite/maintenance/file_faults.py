"""Faults of single files that are not in use, such as the copies of a backup."""

import sqlite3
from contextlib import closing
from pathlib import Path

from auth.library_files import recorded_files
from config.paths import DATABASE_KINDS, DataRoot, UserId
from config.sqlite_errors import DATABASE_ERRORS


def connect_immutable(path: Path) -> sqlite3.Connection:
    """Opens a file that is not written to, so that SQLite creates no log next to it."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def find_fault(path: Path) -> str | None:
    """Returns what is wrong with a file, to follow its name in a sentence."""
    try:
        with closing(connect_immutable(path)) as connection:
            [result] = connection.execute("PRAGMA quick_check(1)").fetchone()
    except DATABASE_ERRORS:
        result = "not a database"
    return None if result == "ok" else "failed SQLite's integrity check"


def missing_files(data_root: DataRoot, user_id: UserId) -> list[str]:
    """Returns a sentence for each file that the user must have but that does not exist or is empty."""
    recorded = recorded_files(data_root.control_path, user_id)
    return [
        f"{kind}.db is missing or empty"
        for kind in DATABASE_KINDS
        if kind in recorded and not data_root.has_content(user_id, kind)
    ]
