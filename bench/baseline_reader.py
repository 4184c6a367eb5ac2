"""The SQL baseline of a search of the whole library, measured in a separate process.

It runs the statements of `bench.baseline_search` and one for the titles of conversations. It reads queries as lines of
text from standard input and prints, as one line of JSON, the CPU time of the six statements including fetching, and the
number of rows. Parsing the query and building the MATCH expressions is not counted.
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

from bench.baseline_search import STATEMENTS, Statement
from bench.sources import LIMIT
from config.settings import Settings
from sources.search.arguments import read_query
from sources.storage.sqlite.search.fts5_engine import match_text

# Titles are in the index of the messages under negative row ids, so the index skips everything else.
_TITLES = """
    SELECT c.uuid, c.title, c.tags, c.created_at, c.last_modified, c.version, c.content_hash
    FROM chats_index JOIN conversations c ON c.id = -chats_index.rowid
    WHERE chats_index MATCH ? AND chats_index.rowid < 0 AND c.deleted = 0
    ORDER BY bm25(chats_index, 3.0, 3.0, 1.0) LIMIT ?
"""
BY_BM25: Mapping[str, Statement] = {**STATEMENTS, "chat titles": Statement("chacha", "title", _TITLES)}
_ORDER_BY_BM25 = re.compile(r"ORDER BY bm25\((\w+), (.*)\)")


def by_rank(statement: Statement) -> Statement:
    """Returns a statement with the same rows in the same order, sorted by FTS5's hidden `rank` column.

    The index then sorts by itself and joins row by row, which is cheaper.
    """
    return replace(statement, sql=_ORDER_BY_BM25.sub(r"AND \1.rank MATCH 'bm25(\2)' ORDER BY \1.rank", statement.sql))


BY_RANK: Mapping[str, Statement] = {source: by_rank(statement) for source, statement in BY_BM25.items()}


class BaselineResult(Struct, frozen=True):
    """CPU time of the six statements for one query, sorted by bm25() and sorted by rank."""

    cpu_ms: float
    ranked_ms: float
    rows: int


class BaselineReader:
    """The files of one user, each with a connection that has the same cache size as our own readers."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self._settings = settings
        self._connections = {file: _connect(home / f"{file}.db", settings) for file in ("media", "chacha", "prompts")}

    def matches(self, query: str) -> dict[str, str]:
        """Returns the MATCH expression of each statement, the same that our own search uses."""
        expression = read_query(query, self._settings).expression
        assert expression is not None
        return {source: match_text(expression, statement.title) for source, statement in BY_BM25.items()}

    def rows(self, statement: Statement, match: str) -> list[Any]:
        return self._connections[statement.file].execute(statement.sql, (match, LIMIT)).fetchall()

    def measure(self, query: str) -> BaselineResult:
        matches = self.matches(query)
        cpu_ms, rows = self._measure(BY_BM25, matches)
        ranked_ms, _ = self._measure(BY_RANK, matches)
        return BaselineResult(cpu_ms, ranked_ms, rows)

    def _measure(self, statements: Mapping[str, Statement], matches: Mapping[str, str]) -> tuple[float, int]:
        """Returns CPU milliseconds and the number of fetched rows."""
        started_at = time.process_time_ns()
        rows = sum(len(self.rows(statements[source], match)) for source, match in matches.items())
        return (time.process_time_ns() - started_at) / 1_000_000, rows

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _connect(path: Path, settings: Settings) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    connection.execute(f"PRAGMA cache_size = -{settings.library_cache_kib}")
    connection.execute("PRAGMA query_only = ON")
    return connection


def main(home: str) -> None:
    reader = BaselineReader(Path(home), Settings())
    for line in sys.stdin:
        sys.stdout.buffer.write(msgspec.json.encode(reader.measure(line.rstrip("\n"))) + b"\n")
        sys.stdout.buffer.flush()
    reader.close()


if __name__ == "__main__":
    main(sys.argv[1])
