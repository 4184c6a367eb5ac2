"""The import benchmark runs end to end, and its floor writes the same rows as the import."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from bench.imports import CHATS, chacha_path, import_file, write_chats, write_floor
from bench.large_formats import LARGE_FORMATS
from tests.bench.runs import output_of

RESULT = re.compile(
    r"RESULT worst_ratio=([0-9.]+) peak_rss_mb=([0-9]+) slowest_read_mb_s=([0-9.]+) read_peak_rss_mb=([0-9]+)"
)


def test_quick_run_measures_notes_and_messages_and_prints_the_result() -> None:
    *report, last = output_of("bench.imports", "--quick")
    measured, large = report[1:3], report[3:]
    assert [line.split()[:2] for line in measured] == [["notes", "200"], ["messages", "1,000"]]
    assert [line.split()[0] for line in large] == list(LARGE_FORMATS)
    assert all(" 0 items" not in line for line in large)
    result = RESULT.fullmatch(last)
    assert result is not None
    ratios = [float(line.split()[-2]) for line in measured]
    assert float(result[1]) == max(ratios)


def test_floor_writes_the_same_rows_and_the_same_index(tmp_path: Path) -> None:
    write_chats(tmp_path / "chats", 500)
    imported = import_file(CHATS, tmp_path / "chats", tmp_path / "library")
    floor = write_floor(CHATS, tmp_path / "library", tmp_path)

    assert (imported.rows, floor.rows) == (500, 500)
    assert _contents(chacha_path(tmp_path / "library")) == _contents(tmp_path / "floor.db")


def _contents(file: Path) -> list[object]:
    with closing(sqlite3.connect(file)) as connection:
        return [
            connection.execute("SELECT * FROM messages ORDER BY id").fetchall(),
            connection.execute("SELECT * FROM conversations ORDER BY id").fetchall(),
            connection.execute("SELECT rowid FROM chats_index ORDER BY rowid").fetchall(),
            connection.execute("SELECT count(*) FROM chats_index_docsize").fetchall(),
        ]
