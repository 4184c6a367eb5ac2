"""An import that was killed is completed by the next one: the library is the same as if nothing had happened."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.sources.importers.killed_import import import_file, write_exports
from tests.sources.storage.sqlite.file_checks import check_files

KILLS = 30
_TABLES = ("notes", "notes_tags", "conversations", "messages", "state")
# When a row was changed is not what it says.
_TIMES = ("last_modified",)


def rows_of(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that both users' files hold, by file and table."""
    return {
        f"{file.parent.name} {table}": _rows(file, table)
        for file in sorted(root.rglob("chacha.db"))
        for table in _TABLES
    }


def _rows(file: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] not in _TIMES]
        return connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2").fetchall()


async def test_thirty_imports_that_were_killed_are_completed_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.importers.killed_import", str(tmp_path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    moments = done.stdout.split()
    assert len(moments) == KILLS, done.stderr
    assert len(set(moments)) > KILLS // 2

    older, newer = write_exports(tmp_path)
    undisturbed = tmp_path / "undisturbed"
    await import_file(undisturbed, older)
    await import_file(undisturbed, newer)
    expected = rows_of(undisturbed)
    assert len(expected) == 2 * len(_TABLES)
    assert all(expected.values())
    for number in range(KILLS):
        assert rows_of(tmp_path / f"round{number}") == expected
        check_files(tmp_path / f"round{number}")
