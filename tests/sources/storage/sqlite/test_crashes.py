"""A process that is killed while writing loses no confirmed write and damages nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from sources.storage.contract import MessageSearch
from sources.storage.sqlite.collections import SqliteLibrary
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
