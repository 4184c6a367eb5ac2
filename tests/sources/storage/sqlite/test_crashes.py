"""A process killed while it writes loses nothing that it said was written, and damages nothing."""

import subprocess
import sys
from pathlib import Path

from sources.storage.contract import MessageSearch
from tests.sources.storage.library_fixture import open_sqlite
from tests.sources.storage.sqlite.files import check_files

KILLS = 30


async def test_thirty_kills_lose_no_told_write_and_leave_every_index_true(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.crashing_writer", str(tmp_path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    rounds = done.stdout.splitlines()
    assert len(rounds) == KILLS, done.stderr
    told = [line.split() for one in rounds for line in one.split("\t")]
    assert len(told) > KILLS * 5
    async with open_sqlite(tmp_path) as libraries:
        for owner in ("ada", "ben"):
            async with libraries.library(owner) as library:
                for who, kind, key in told:
                    if who == owner:
                        await getattr(library, kind).get(key if kind in {"notes", "chats"} else int(key))
    check_files(tmp_path)


async def test_kills_while_indexes_are_made_leave_them_true_and_lose_no_way(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.crashing_index_builder", str(tmp_path), "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    left = [int(line) for line in done.stdout.splitlines()]
    assert len(left) == 8, done.stderr
    assert any(left)
    check_files(tmp_path)
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries:
        for owner in ("ada", "ben"):
            async with libraries.library(owner) as library:
                search = MessageSearch(text="nowhere", limit=1, deadline_ms=10_000)
                while not (await library.chats.find_messages(search)).is_complete:
                    pass
                found = await library.chats.find_messages(MessageSearch(text="STRASSE", limit=900, deadline_ms=10_000))
                assert len(found.hits) > 400
    check_files(tmp_path)
