"""Which database files each user has, recorded in the control database.

Without the record, a lost or truncated file would look like one that was never created: the user would see an
empty library, write into it, and the next backup would replace the good one.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from auth.sqlite_control import storage_errors
from config.paths import DATABASE_KINDS, DatabaseKind, DataRoot, UserId

_BUSY_TIMEOUT_S = 1.0
_HAS_COLUMN = "SELECT 1 FROM pragma_table_info('users') WHERE name = 'files'"


def recorded_files(control_path: Path, user_id: UserId) -> frozenset[str]:
    """Returns the kinds of files that the user must have. Versions before 0.1.0 recorded none."""
    with _open(control_path) as control:
        if control is None or not control.execute(_HAS_COLUMN).fetchone():
            return frozenset()
        row = control.execute("SELECT files FROM users WHERE id = ?", (user_id,)).fetchone()
    return frozenset((row[0] or "").split()) if row else frozenset()


def record_file(control_path: Path, user_id: UserId, kind: DatabaseKind) -> None:
    """Records a file after its schema was created. Two files of a user may be created at the same time."""
    with _open(control_path) as control:
        if control:
            control.execute(
                "UPDATE users SET files = trim(coalesce(files, '') || ' ' || ?1) "
                "WHERE id = ?2 AND ' ' || coalesce(files, '') || ' ' NOT LIKE '% ' || ?1 || ' %'",
                (kind, user_id),
            )


def forget_file(control_path: Path, user_id: UserId, kind: DatabaseKind) -> None:
    """Lets the user start with an empty file of this kind."""
    with _open(control_path) as control:
        if control:
            control.execute(
                "UPDATE users SET files = trim(replace(' ' || files || ' ', ' ' || ?1 || ' ', ' ')) WHERE id = ?2",
                (kind, user_id),
            )


def record_existing_files(data_root: DataRoot, control: sqlite3.Connection) -> None:
    """Records the files of users from versions that did not record them."""
    for (user_id,) in control.execute("SELECT id FROM users WHERE files IS NULL").fetchall():
        kinds = [kind for kind in DATABASE_KINDS if data_root.has_content(user_id, kind)]
        control.execute("UPDATE users SET files = ? WHERE id = ? AND files IS NULL", (" ".join(kinds), user_id))


@contextmanager
def _open(control_path: Path) -> Iterator[sqlite3.Connection | None]:
    """Yields None if libraries are used without a registry, as by some tools and tests."""
    if not control_path.exists() or not control_path.stat().st_size:
        yield None
        return
    uri = f"{control_path.absolute().as_uri()}?mode=rw"
    with (
        storage_errors(),
        closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as control,
    ):
        control.execute("PRAGMA synchronous = FULL")
        yield control
