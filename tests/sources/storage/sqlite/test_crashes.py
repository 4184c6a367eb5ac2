"""A process killed while it writes loses nothing that it said was written, and damages nothing."""

import subprocess
import sys
from pathlib import Path

from tests.sources.storage.desk import open_sqlite
from tests.sources.storage.sqlite.files import check_files

KILLS = 30


async def test_thirty_kills_lose_no_told_write_and_leave_every_index_true(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.crashing_writer", str(tmp_path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    rounds = done.stdout.splitlines()
    assert len(rounds) == KILLS, done.stderr
    told = [line.split() for one in rounds for line in one.split("\t")]
    assert len(told) > KILLS * 5
    async with open_sqlite(tmp_path) as desk:
        for owner in ("ada", "ben"):
            async with desk.library(owner) as library:
                for who, kind, key in told:
                    if who == owner:
                        await getattr(library, kind).get(key if kind in {"notes", "chats"} else int(key))
    check_files(tmp_path)
