"""A deployment in the shape of tldw's: a folder of databases for each user, and processes that write to them."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.sources.importers.tldw_files import CHACHA, MEDIA, NEWER_CHACHA, NEWER_MEDIA, PROMPTS, SYNC_LOG

CHACHA_NAME, MEDIA_NAME = "ChaChaNotes.db", "Media_DB_v2.db"
PROMPTS_NAME = "prompts_user_dbs/user_prompts_v2.sqlite"
TIME = "2026-01-01T00:00:00.000Z"
# Changes every user's databases round by round, and measures with a busy timeout of 0 for how long one was locked.
_WRITER = """
import json, sqlite3, sys, time
root, rounds, users = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
longest, failures, connections = 0.0, 0, {}

def connect(user, name):
    # The first connection to a file and the last one lock it for a moment.
    connection = sqlite3.connect(f"{root}/{user}/{name}", timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA busy_timeout = 0")
    return connection

def write(connection, *statements):
    global longest, failures
    locked_since = None
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                connection.execute(sql, values)
            connection.execute("COMMIT")
            break
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            locked_since = locked_since or time.monotonic()
            if "locked" not in str(error) or time.monotonic() - locked_since > 60:
                failures += 1
                break
            time.sleep(0.0005)
    if locked_since is not None:
        longest = max(longest, time.monotonic() - locked_since)

for user in users:
    connections[user] = [connect(user, name) for name in
                         ("ChaChaNotes.db", "Media_DB_v2.db", "prompts_user_dbs/user_prompts_v2.sqlite")]
now = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
for turn in range(1, rounds + 1):
    for user in users:
        chacha, media, prompts = connections[user]
        note, text = f"00000000-0000-4000-{int(user):04}-{turn:012}", f"note {turn} of user {user}"
        write(chacha, (f"INSERT INTO notes (id, title, content, last_modified) VALUES (?, ?, ?, {now})",
                       (note, text, text)))
        write(chacha, (f"UPDATE notes SET title = ?, version = version + 1, last_modified = {now} WHERE title = ?",
                       (f"edited {turn - 1} of user {user}", f"note {turn - 1} of user {user}")))
        message = f"00000000-0000-4001-{int(user):04}-{turn:012}"
        conversation = f"00000000-0000-4002-{int(user):04}-000000000001"
        text = f"message {turn} of user {user}"
        write(chacha, ("INSERT INTO messages (id, conversation_id, sender, content, timestamp) VALUES (?, ?, ?, ?, ?)",
                       (message, conversation, "user", text, "2026-01-01T00:00:00.000Z")))
        write(media, (f"UPDATE Media SET content = ?, version = version + 1, last_modified = {now} WHERE id = 7",
                      (f"transcript {turn} of user {user}",)))
        write(prompts, (f"UPDATE Prompts SET details = ?, version = version + 1, last_modified = {now} WHERE id = 3",
                        (f"prompt {turn} of user {user}",)))
print(json.dumps({"longest_ms": 1000 * longest, "failures": failures}), flush=True)
sys.stdin.read()
"""


def make_user(root: Path, user: int) -> Path:
    """Creates the databases of a user, each in WAL mode and with one item of each kind. Numbers repeat between users,
    as they do in tldw."""
    folder = root / str(user)
    (folder / "prompts_user_dbs").mkdir(parents=True)
    conversation = f"00000000-0000-4002-{user:04}-000000000001"
    dated = {"created_at": TIME, "last_modified": TIME}
    _create(
        folder / CHACHA_NAME,
        (*CHACHA, *NEWER_CHACHA, SYNC_LOG),
        character_cards={"id": 5, "name": f"Character of user {user}", **dated},
        conversations={"id": conversation, "title": f"talk of user {user}", "character_id": 5, **dated},
        notes={
            "id": f"00000000-0000-4000-{user:04}-{0:012}",
            "title": f"note 0 of user {user}",
            "content": "",
            **dated,
        },
    )
    media = {"id": 7, "uuid": f"00000000-0000-4003-{user:04}-000000000007", "title": f"media of user {user}"}
    media |= {"type": "article", "content": f"transcript 0 of user {user}", "ingestion_date": TIME}
    _create(folder / MEDIA_NAME, (*MEDIA, *NEWER_MEDIA), Media={**media, "last_modified": TIME})
    prompt = {"id": 3, "uuid": f"00000000-0000-4004-{user:04}-000000000003", "name": f"prompt of user {user}"}
    _create(folder / PROMPTS_NAME, PROMPTS, Prompts={**prompt, "last_modified": TIME})
    return folder


def execute(path: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as connection, connection:
        connection.execute(sql, values)


def _create(path: Path, schema: Sequence[str], **rows: dict[str, Any]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        for statement in schema:
            connection.execute(statement)
        for table, row in rows.items():
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


class TldwWriter:
    """A process that writes the databases of some users, and keeps them open until it is closed: everything it wrote is
    in the write-ahead logs only."""

    def __init__(self, root: Path, rounds: int, users: Sequence[int]) -> None:
        command = [sys.executable, "-c", _WRITER, str(root), str(rounds), *map(str, users)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def result(self) -> dict[str, float]:
        assert self._process.stdout is not None
        result: dict[str, float] = json.loads(self._process.stdout.readline())
        return result

    def close(self) -> None:
        self._process.communicate("")
