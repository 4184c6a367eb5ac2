"""A process that is killed while writing loses no confirmed write and damages nothing."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from config.paths import DataRoot
from sources.drafts import NoteDraft, PromptDraft
from sources.storage.contract import MessageSearch
from sources.storage.sqlite.collections import SqliteLibrary
from sources.storage.sqlite.maintenance.backups import back_up
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from tests.sources.storage.library_fixture import open_sqlite
from tests.sources.storage.sqlite.file_checks import check_files

pytestmark = pytest.mark.slow("kills processes")

KILLS = 30


async def test_killed_writer_loses_no_confirmed_write_and_leaves_indexes_consistent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.crashing_writer", str(tmp_path), str(KILLS)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    rounds = process.stdout.splitlines()
    assert len(rounds) == KILLS, process.stderr
    reports = [line.split() for line_of_round in rounds for line in line_of_round.split("\t")]
    assert len(reports) > KILLS * 5
    async with open_sqlite(tmp_path) as libraries:
        for owner in ("ada", "ben"):
            async with libraries.library(owner) as library:
                for reporter, kind, key in reports:
                    if reporter == owner:
                        await getattr(library, kind).get(key if kind in {"notes", "chats"} else int(key))
    check_files(tmp_path)


async def test_killed_index_build_leaves_indexes_consistent_and_continues(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.crashing_index_builder", str(tmp_path), "8"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    remaining = [int(line) for line in process.stdout.splitlines()]
    assert len(remaining) == 8, process.stderr
    assert any(remaining)
    check_files(tmp_path)
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries:
        for owner in ("ada", "ben"):
            async with libraries.library(owner) as library:
                search = MessageSearch(text="nowhere", limit=1, deadline_ms=10_000)
                await library.chats.find_messages(search)
                assert isinstance(library, SqliteLibrary)
                await library._databases.index_builder.wait_until_finished(SUBSTRING_INDEX)
                page = await library.chats.find_messages(MessageSearch(text="STRASSE", limit=900, deadline_ms=10_000))
                assert len(page.hits) > 400
    check_files(tmp_path)


async def test_killed_restore_of_a_user_is_complete_or_did_not_happen(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    async with open_sqlite(data) as libraries:
        user_id = libraries.context("ada").user_id
        async with libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="old note"))
            await ada.prompts.create(PromptDraft(name="old prompt"))
    with closing(sqlite3.connect(data / "control.db")) as control, control:
        control.execute("CREATE TABLE users (id TEXT, files TEXT)")
        control.execute("INSERT INTO users VALUES (?, 'chacha prompts')", (user_id,))
    back_up(DataRoot(data), [(user_id, "ada")], backup, "2026-11-19T00:00:00Z")
    for name, sql in (
        ("chacha", "UPDATE notes SET title = 'new note'"),
        ("prompts", "UPDATE prompts SET name = 'new'"),
    ):
        with closing(sqlite3.connect(getattr(DataRoot(data).paths_of(user_id), name))) as connection, connection:
            for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {trigger}")
            connection.execute(sql)

    command = [
        sys.executable,
        "-m",
        "tests.sources.storage.sqlite.interrupted_restore",
        str(data),
        str(backup),
        user_id,
    ]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    *states, end = process.stdout.splitlines() or [""]
    assert end == "complete", process.stderr
    assert set(states) == {"new note, new", "old note, old prompt"}
