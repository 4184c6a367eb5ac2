"""Jobs on the test database of words."""

import sqlite3
import threading
from collections.abc import Callable

from sources.storage.sqlite.connection.database import Database
from tests.sources.storage.sqlite.conftest import INDEX

# Takes longer than any test waits.
ENDLESS_SQL = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
TIMEOUT_S = 60


def insert_word(text: str) -> Callable[[sqlite3.Connection], None]:
    """Returns a job that inserts a word."""

    def insert(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO words (text) VALUES (?)", (text,))

    return insert


def do_nothing(_: sqlite3.Connection) -> None:
    return None


def run_endless_query(connection: sqlite3.Connection) -> None:
    connection.execute(ENDLESS_SQL).fetchall()


async def add_word(database: Database, text: str) -> None:
    await database.write("words", INDEX, insert_word(text))


async def all_words(database: Database) -> list[str]:
    sql = "SELECT text FROM words ORDER BY id"
    return await database.read("words", lambda connection: [text for (text,) in connection.execute(sql)])


class GatedJob:
    """A job that signals its start and waits until it is released."""

    def __init__(self, then: Callable[[sqlite3.Connection], None] = do_nothing) -> None:
        self.started = threading.Event()
        self.released = threading.Event()
        self._then = then

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.started.set()
        assert self.released.wait(TIMEOUT_S)
        self._then(connection)
