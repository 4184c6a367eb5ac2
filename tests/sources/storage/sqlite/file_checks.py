"""Checks the files of the SQLite engine from outside, using only SQLite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sources.storage.sqlite.index.message_index import IndexProgress, MessageIndex
from sources.storage.sqlite.search.exact import EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from sources.text.segmentation import separate_letters

_MESSAGE_INDEXES = (SUBSTRING_INDEX, EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX)


def check_files(root: Path) -> None:
    """Checks that every file in a data directory is intact, and that each index contains exactly its rows."""
    files = list(root.glob("users/*/*/*.db"))
    assert files
    for file in files:
        with open_file(file) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            for (index,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE % USING fts5 (%'"
            ).fetchall():
                if index not in {one.table for one in _MESSAGE_INDEXES}:
                    connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
                assert connection.execute(f"SELECT count(*) FROM {index}_queue").fetchone() == (0,)
            if file.name == "chacha.db":
                check_message_indexes(connection)


def check_message_indexes(connection: sqlite3.Connection) -> None:
    """Checks that an on-demand index contains exactly the rows up to its progress."""
    for index in _MESSAGE_INDEXES:
        progress = index.progress(connection)
        if progress is not None:
            connection.execute(f"INSERT INTO {index.table} ({index.table}) VALUES ('integrity-check')")
            assert _indexed_tokens(connection, index) == _expected_tokens(connection, index, progress)


def _indexed_tokens(connection: sqlite3.Connection, index: MessageIndex) -> set[tuple[int, str]]:
    """Returns the rowids and tokens in the index."""
    connection.execute(f"CREATE VIRTUAL TABLE temp.tokens USING fts5vocab (main, {index.table}, instance)")
    tokens = set(connection.execute("SELECT doc, term FROM temp.tokens").fetchall())
    connection.execute("DROP TABLE temp.tokens")
    return tokens


def _expected_tokens(
    connection: sqlite3.Connection, index: MessageIndex, progress: IndexProgress
) -> set[tuple[int, str]]:
    rows = connection.execute(
        "SELECT m.id, m.content FROM messages m JOIN conversations c ON c.id = m.conversation_id "
        "WHERE m.deleted = 0 AND c.deleted = 0 AND m.id > ? AND m.human_only = ?",
        (progress.messages, int(index.is_human_only)),
    ).fetchall()
    if index.has_titles:
        sql = "SELECT -id, title FROM conversations WHERE deleted = 0 AND id > ?"
        rows += connection.execute(sql, (progress.titles,)).fetchall()
    tokenize = _trigrams if index is SUBSTRING_INDEX else _words
    return {(rowid, token) for rowid, text in rows for token in tokenize(text)}


def _trigrams(text: str) -> set[str]:
    padded = f"{text.casefold()}  "
    return {padded[at : at + 3] for at in range(len(padded) - 2)} if text else set()


def _words(text: str) -> set[str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5 (content, tokenize='unicode61')")
        connection.execute("INSERT INTO words VALUES (?)", (separate_letters(text),))
        connection.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (words, row)")
        return {token for (token,) in connection.execute("SELECT term FROM tokens")}


@contextmanager
def open_file(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection
