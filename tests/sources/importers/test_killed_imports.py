"""A killed import is completed by the next one: the library is the same as after an undisturbed import."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.sources.importers.killed_import import import_file, write_exports
from tests.sources.storage.sqlite.file_checks import check_files

pytestmark = pytest.mark.slow("kills processes")

KILLS = 30
_TABLES = ("notes", "notes_tags", "conversations", "messages", "state")
# Modification times differ between runs.
_IGNORED_COLUMNS = ("last_modified",)


def all_rows(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the rows in both users' files, by file and table."""
    return {
        f"{file.parent.name} {table}": _rows(file, table)
        for file in sorted(root.rglob("chacha.db"))
        for table in _TABLES
    }


def _rows(file: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        columns = [name for name in names if name not in _IGNORED_COLUMNS]
        return connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2").fetchall()


@pytest.mark.sqlite  # compares files; on PostgreSQL, an import of a killed worker is continued in tests/server/workers
async def test_killed_imports_are_completed_by_the_next_import(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.importers.killed_import", str(tmp_path), str(KILLS)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    kill_points = process.stdout.split()
    assert len(kill_points) == KILLS, process.stderr
    assert len(set(kill_points)) > KILLS // 2

    older, newer = write_exports(tmp_path)
    undisturbed = tmp_path / "undisturbed"
    await import_file(undisturbed, older)
    await import_file(undisturbed, newer)
    expected = all_rows(undisturbed)
    assert len(expected) == 2 * len(_TABLES)
    assert all(expected.values())
    for number in range(KILLS):
        assert all_rows(tmp_path / f"round{number}") == expected
        check_files(tmp_path / f"round{number}")
