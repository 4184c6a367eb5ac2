"""Looks at the files of an SQLite engine from outside, with nothing but SQLite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


def check_files(root: Path) -> None:
    """Every file under a data root is whole, and each index in it holds exactly what its rows say."""
    files = list(root.glob("users/*/*/*.db"))
    assert files
    for file in files:
        with opened(file) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            for (index,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"
            ).fetchall():
                connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
                assert connection.execute(f"SELECT count(*) FROM {index}_queue").fetchone() == (0,)


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection
