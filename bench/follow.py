"""`make bench-follow`: how soon changes of followed sources are searchable, and what following costs when idle.

A real server follows a vault of 20,000 notes, a growing session and a database in WAL mode that another connection has
open. The time of a change is that from the end of the write to the first search that finds the new word, including the
search and the pause between two searches. Idle CPU is the CPU time of the server per wall time while nothing changes.

A second server follows the databases of tldw users. Two processes write to them with a busy timeout of 0 and measure
for how long a database was locked at most.
"""

import argparse
import http.client
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.processes import cpu_seconds
from bench.prose import Prose
from tests.server.following.tldw_deployment import TldwWriter, make_user

FOLDERS = 200
WORDS_PER_NOTE = 60
POLL_S = 0.05
IMPORT_DEADLINE_S = 480
CHANGE_DEADLINE_S = 60
SETTLE_S = 5
SESSION = "0b0e7a52-5a2e-4b3c-9d0a-1f2e3d4c5b6a"
SCHEMA = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT, create_time REAL, update_time REAL);
CREATE TABLE messages (id TEXT PRIMARY KEY, conversation_id TEXT, role TEXT, content TEXT, create_time REAL,
    position INTEGER, parent_id TEXT);
"""


class Effort(Struct, frozen=True):
    files: int
    changes: int
    idle_s: float
    tldw_users: int
    tldw_rounds: int


FULL = Effort(files=20_000, changes=20, idle_s=60.0, tldw_users=20, tldw_rounds=200)
QUICK = Effort(files=300, changes=3, idle_s=3.0, tldw_users=4, tldw_rounds=10)


class Server:
    """A running server of a single user."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self._process = process
        self._port = port

    def finds(self, word: str) -> bool:
        return bool(self._request("POST", "/api/v1/search", {"query": word})["results"])

    def follow(self, path: Path) -> None:
        self._request("POST", "/api/v1/follows", {"location": str(path)})

    def follow_tldw(self, path: Path) -> None:
        body = {"location": str(path), "create_users": True}
        self._request("POST", "/api/v1/follow-deployments", body)

    def followed_tldw_users(self) -> int:
        """Returns the number of tldw users whose databases are current."""
        [deployment] = self._request("GET", "/api/v1/follow-deployments")["deployments"]
        users = self._request("GET", f"/api/v1/follow-deployments/{deployment['id']}")["users"]
        return sum(user["state"] == "current" for user in users)

    def files(self) -> int:
        """Returns the number of followed files that were read."""
        return sum(source["files"] for source in self._request("GET", "/api/v1/follows")["follows"])

    def cpu_s(self) -> float:
        return cpu_seconds(self._process.pid)

    def _request(self, method: str, path: str, body: object = None) -> dict[str, list[dict[str, Any]]]:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer: dict[str, list[dict[str, Any]]] = json.loads(connection.getresponse().read())
            return answer


@contextmanager
def running_server(root: Path) -> Iterator[Server]:
    port = random.SystemRandom().randrange(20_000, 40_000)
    limits = ("--rate-user-per-minute", "0", "--rate-tool-per-minute", "0", "--semantic-model", "off")
    command = [
        sys.executable,
        "-m",
        "server.cli",
        "serve",
        "--data-dir",
        str(root / "data"),
        "--port",
        str(port),
        *limits,
    ]
    with (root / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
    try:
        server = Server(process, port)
        wait_until(lambda: is_ready(port), IMPORT_DEADLINE_S)
        yield server
    finally:
        process.terminate()
        process.wait(30)


def is_ready(port: int) -> bool:
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
    except OSError:
        return False


def wait_until(is_reached: Callable[[], bool], deadline_s: float) -> float:
    """Returns how long it took."""
    started_at = time.monotonic()
    while not is_reached():
        if time.monotonic() - started_at > deadline_s:
            raise SystemExit("a change was not found in time")
        time.sleep(POLL_S)
    return time.monotonic() - started_at


def write_vault(folder: Path, files: int) -> None:
    prose = Prose(1)
    (folder / ".obsidian").mkdir(parents=True)
    for number in range(files):
        path = note_path(folder, number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# Note {number}\n\n{prose.text(WORDS_PER_NOTE)}\n")


def note_path(folder: Path, number: int) -> Path:
    return folder / f"folder {number % FOLDERS}" / f"note {number}.md"


def append_line(path: Path, number: int, text: str) -> None:
    line = {
        "parentUuid": None,
        "type": "user",
        "sessionId": SESSION,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "cwd": "/home/user/kettle",
        "version": "2.0",
        "timestamp": f"2026-01-01T00:00:{number % 60:02}.000Z",
        "message": {"role": "user", "content": [{"type": "text", "text": text}]},
    }
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def insert_message(connection: sqlite3.Connection, number: int, text: str) -> None:
    connection.execute("INSERT OR REPLACE INTO conversations VALUES ('c1', 'Tea', 1700000000, ?)", (1.7e9 + number,))
    row = (f"m{number}", "c1", "user", text, 1.7e9 + number, number, None)
    connection.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.commit()


def percentile_95(values: list[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


def measure(root: Path, effort: Effort) -> str:
    vault, sessions, database = root / "vault", root / "sessions", root / "browser.db"
    write_vault(vault, effort.files)
    sessions.mkdir()
    append_line(sessions / f"{SESSION}.jsonl", 0, "The first line.")
    with running_server(root) as server, closing(sqlite3.connect(database)) as owner:
        owner.execute("PRAGMA journal_mode = WAL")
        owner.executescript(SCHEMA)
        insert_message(owner, 0, "The first message.")
        for path in (vault, sessions, database):
            server.follow(path)
        import_s = wait_until(lambda: server.files() >= effort.files + 2, IMPORT_DEADLINE_S)
        time.sleep(SETTLE_S)
        cpu_s, started_at = server.cpu_s(), time.monotonic()
        time.sleep(effort.idle_s)
        idle = (server.cpu_s() - cpu_s) / (time.monotonic() - started_at)

        def change_note(number: int, word: str) -> None:
            note_path(vault, number * 7 % effort.files).write_text(f"# Changed\n\n{word}\n")

        fresh = measure_changes(server, effort.changes, "note", change_note)
        session = measure_changes(
            server, effort.changes, "line", lambda n, word: append_line(sessions / f"{SESSION}.jsonl", n, word)
        )
        rows = measure_changes(server, effort.changes, "row", lambda n, word: insert_message(owner, n, word))
    return (
        f"RESULT fresh_p95_s={percentile_95(fresh):.2f} idle_cpu_pct={100 * idle:.2f} "
        f"fresh_session_p95_s={percentile_95(session):.2f} fresh_database_p95_s={percentile_95(rows):.2f} "
        f"files={effort.files} import_s={import_s:.0f}"
    )


def measure_tldw(root: Path, effort: Effort) -> str:
    """Writes while the databases are followed, and waits until the last change of every user was read."""
    folder, users = root / "user_databases", range(1, effort.tldw_users + 1)
    for user in users:
        make_user(folder, user)
    with running_server(root) as server:
        server.follow_tldw(folder)
        writers = [TldwWriter(folder, effort.tldw_rounds, users[start::2]) for start in range(2)]
        results = [writer.result() for writer in writers]
        wait_until(lambda: server.followed_tldw_users() == len(users), IMPORT_DEADLINE_S)
        for writer in writers:
            writer.close()
    longest = max(result["longest_ms"] for result in results)
    failures = sum(result["failures"] for result in results)
    return f"tldw_lock_max_ms={longest:.1f} tldw_failures={failures:.0f} tldw_users={effort.tldw_users}"


def measure_changes(server: Server, changes: int, kind: str, change: Callable[[int, str], None]) -> list[float]:
    times = []
    for number in range(1, changes + 1):
        word = f"{kind}{number}zebra"
        change(number, word)
        times.append(wait_until(partial(server.finds, word), CHANGE_DEADLINE_S))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few files and changes, to try the benchmark itself")
    effort = QUICK if parser.parse_args().quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        followed = measure(Path(folder), effort)
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(f"{followed} {measure_tldw(Path(folder), effort)}\n")


if __name__ == "__main__":
    main()
