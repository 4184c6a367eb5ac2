"""How many messages match is counted, unless the oldest of them tell that far too many do."""

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


def _write(connection: sqlite3.Connection, says_it: Callable[[int], bool]) -> None:
    numbers = range(1, MESSAGES + 1)
    connection.executemany("INSERT INTO messages VALUES (?)", ((number,) for number in numbers))
    texts = ((number, f"{'tea' if says_it(number) else 'milk'} {number}") for number in numbers)
    connection.executemany("INSERT INTO exact_index (rowid, content) VALUES (?, ?)", texts)


def _looked_up(connection: sqlite3.Connection) -> tuple[list[int], bool]:
    found = find(connection, ExactSearch(expression="tea", limit=2, deadline_ms=1_000), RANKED)
    return [match.rowid for match in found.matches], found.is_ranked


@pytest.mark.parametrize(
    ("says_it", "is_ranked"),
    [
        pytest.param(lambda n: n % 2 == 0, False, id="in every other message"),
        pytest.param(lambda n: n % 10 == 0, True, id="just as often as is ranked"),
        pytest.param(lambda n: n % 10 == 0 or n == MESSAGES - 1, False, id="once more than is ranked"),
        pytest.param(lambda n: n > MESSAGES - RANKED, True, id="of late"),
        pytest.param(lambda n: n >= MESSAGES - RANKED, False, id="of late, and once more than is ranked"),
        pytest.param(lambda n: n < 1_500, True, id="long ago, in fewer messages than tell anything"),
    ],
)
def test_what_too_many_messages_say_is_not_ranked(
    connection: sqlite3.Connection, says_it: Callable[[int], bool], is_ranked: bool
) -> None:
    _write(connection, says_it)

    numbers, was_ranked = _looked_up(connection)

    assert was_ranked is is_ranked
    if not is_ranked:
        assert numbers == [n for n in range(MESSAGES, 0, -1) if says_it(n)][:2]


def test_what_the_oldest_messages_all_say_is_taken_to_be_common(connection: sqlite3.Connection) -> None:
    _write(connection, lambda n: n <= 2_500)

    assert _looked_up(connection) == ([2_500, 2_499], False)
