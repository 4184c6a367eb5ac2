"""Work on the file of words: what tests have a database do."""

import sqlite3
import threading
from collections.abc import Callable

from sources.storage.sqlite.connection.database import Database
from tests.sources.storage.sqlite.conftest import INDEX

# Counts for longer than any test waits.
ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
PATIENCE_S = 20


def adding(text: str) -> Callable[[sqlite3.Connection], None]:
    return lambda connection: void(connection.execute("INSERT INTO words (text) VALUES (?)", (text,)))


def void(_: object) -> None:
    return None


def endless(connection: sqlite3.Connection) -> None:
    connection.execute(ENDLESS).fetchall()


async def add(database: Database, text: str) -> None:
    await database.write("words", INDEX, adding(text))


async def all_words(database: Database) -> list[str]:
    sql = "SELECT text FROM words ORDER BY id"
    return await database.read("words", lambda connection: [text for (text,) in connection.execute(sql)])


class Gate:
    """Work that tells when it has begun and goes on when it is let."""

    def __init__(self, then: Callable[[sqlite3.Connection], None] = void) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()
        self._then = then

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.begun.set()
        assert self.open.wait(PATIENCE_S)
        self._then(connection)
