"""Another process that has an SQLite database open and writes to it."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = " + sys.argv[2])
connection.execute("PRAGMA wal_autocheckpoint = 0")
print("ready", flush=True)
for line in sys.stdin:
    connection.executescript(line)
    print("done", flush=True)
"""
# The tables of chatGPT-browser's canonical export.
SCHEMA = (
    "CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT, create_time REAL, update_time REAL);"
    "CREATE TABLE messages (id TEXT PRIMARY KEY, conversation_id TEXT, role TEXT, content TEXT, create_time REAL,"
    " position INTEGER, parent_id TEXT);"
)


class DatabaseOwner:
    """Nothing is written back to the main file before `checkpoint` or `close` in WAL mode."""

    def __init__(self, path: Path, journal_mode: str = "WAL") -> None:
        command = [sys.executable, "-c", _PROGRAM, str(path), journal_mode]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect("ready")

    def execute(self, sql: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(sql.replace("\n", " ") + "\n")
        self._process.stdin.flush()
        self._expect("done")

    def checkpoint(self) -> None:
        self.execute("PRAGMA wal_checkpoint(TRUNCATE);")

    def close(self) -> None:
        self._process.communicate("")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word
