"""The exact search ranks matches unless there are too many, estimated from the oldest messages."""

import sqlite3
from collections.abc import Callable, Iterator

import pytest

from sources.storage.contract import ExactSearch
from sources.storage.sqlite.search.exact import find

MESSAGES = 30_000
RANKED = 3_000


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE VIRTUAL TABLE exact_index USING fts5 (content)")
    yield connection
    connection.close()


def _create_messages(connection: sqlite3.Connection, matches: Callable[[int], bool]) -> None:
    rowids = range(1, MESSAGES + 1)
    connection.executemany("INSERT INTO messages VALUES (?)", ((rowid,) for rowid in rowids))
    texts = ((rowid, f"{'tea' if matches(rowid) else 'milk'} {rowid}") for rowid in rowids)
    connection.executemany("INSERT INTO exact_index (rowid, content) VALUES (?, ?)", texts)


def _find(connection: sqlite3.Connection) -> tuple[list[int], bool]:
    result = find(connection, ExactSearch(expression="tea", limit=2, deadline_ms=1_000), RANKED)
    return [match.rowid for match in result.matches], result.is_ranked


@pytest.mark.parametrize(
    ("matches", "is_ranked"),
    [
        pytest.param(lambda n: n % 2 == 0, False, id="in every other message"),
        pytest.param(lambda n: n % 10 == 0, True, id="exactly the limit"),
        pytest.param(lambda n: n % 10 == 0 or n == MESSAGES - 1, False, id="one more than the limit"),
        pytest.param(lambda n: n > MESSAGES - RANKED, True, id="only recent"),
        pytest.param(lambda n: n >= MESSAGES - RANKED, False, id="only recent, one more than the limit"),
        pytest.param(lambda n: n < 1_500, True, id="only old, fewer than the sample"),
    ],
)
def test_expression_with_too_many_matches_is_not_ranked(
    connection: sqlite3.Connection, matches: Callable[[int], bool], is_ranked: bool
) -> None:
    _create_messages(connection, matches)

    rowids, was_ranked = _find(connection)

    assert was_ranked is is_ranked
    if not is_ranked:
        assert rowids == [n for n in range(MESSAGES, 0, -1) if matches(n)][:2]


def test_expression_in_all_of_the_oldest_messages_counts_as_common(connection: sqlite3.Connection) -> None:
    _create_messages(connection, lambda n: n <= 2_500)

    assert _find(connection) == ([2_500, 2_499], False)
