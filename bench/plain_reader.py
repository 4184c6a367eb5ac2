"""What a search of the whole library costs without us, measured in a process that does nothing else: the plain
statements of `bench.plain_search` and one for the titles of conversations, one after the other.

A query is a line of text on standard input. The answer is a line of JSON: the processor time of the six statements
with their rows fetched, and how many rows there were. To read the query and to write its MATCH expressions is not
counted.
"""

import re
import sqlite3
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench.plain_search import STATEMENTS, Statement
from bench.sources import LIMIT
from config.settings import Settings
from sources.search.arguments import read_query
from sources.storage.sqlite.search.match_expression import match_text

# Titles stand in the index of the messages, under numbers below zero: the index passes by everything else.
_TITLES = """
    SELECT c.uuid, c.title, c.tags, c.created_at, c.last_modified, c.version, c.content_hash
    FROM chats_index JOIN conversations c ON c.id = -chats_index.rowid
    WHERE chats_index MATCH ? AND chats_index.rowid < 0 AND c.deleted = 0
    ORDER BY bm25(chats_index, 3.0, 3.0, 1.0) LIMIT ?
"""
SIX: Mapping[str, Statement] = {**STATEMENTS, "chat titles": Statement("chacha", "title", _TITLES)}
_ORDERED = re.compile(r"ORDER BY bm25\((\w+), (.*)\)")


def by_rank(statement: Statement) -> Statement:
    """The same rows in the same order, by FTS5's hidden column. The index then sorts by itself and joins the rows one
    by one, which is cheaper; few know it."""
    return replace(statement, sql=_ORDERED.sub(r"AND \1.rank MATCH 'bm25(\2)' ORDER BY \1.rank", statement.sql))


RANKED: Mapping[str, Statement] = {source: by_rank(statement) for source, statement in SIX.items()}


class Plainly(Struct, frozen=True):
    """One query, answered by the six statements: their CPU time, and that of the same by rank."""

    cpu_ms: float
    ranked_ms: float
    rows: int


class PlainReader:
    """The files of one user, each on a connection with the cache that our own readers have."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self._settings = settings
        self._connections = {file: _connect(home / f"{file}.db", settings) for file in ("media", "chacha", "prompts")}

    def matches(self, query: str) -> dict[str, str]:
        """The expression that each statement has to match: the one our own search of the query matches there."""
        expression = read_query(query, self._settings).expression
        assert expression is not None
        return {source: match_text(expression, statement.title) for source, statement in SIX.items()}

    def rows(self, statement: Statement, match: str) -> list[Any]:
        return self._connections[statement.file].execute(statement.sql, (match, LIMIT)).fetchall()

    def ask(self, query: str) -> Plainly:
        matches = self.matches(query)
        cpu_ms, rows = self._measure(SIX, matches)
        ranked_ms, _ = self._measure(RANKED, matches)
        return Plainly(cpu_ms, ranked_ms, rows)

    def _measure(self, statements: Mapping[str, Statement], matches: Mapping[str, str]) -> tuple[float, int]:
        """CPU milliseconds, and how many rows were fetched."""
        began = time.process_time_ns()
        rows = sum(len(self.rows(statements[source], match)) for source, match in matches.items())
        return (time.process_time_ns() - began) / 1_000_000, rows

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _connect(path: Path, settings: Settings) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    connection.execute(f"PRAGMA cache_size = -{settings.library_cache_kib}")
    connection.execute("PRAGMA query_only = ON")
    return connection


def main(home: str) -> None:
    reader = PlainReader(Path(home), Settings())
    for line in sys.stdin:
        sys.stdout.buffer.write(msgspec.json.encode(reader.ask(line.rstrip("\n"))) + b"\n")
        sys.stdout.buffer.flush()
    reader.close()


if __name__ == "__main__":
    main(sys.argv[1])
