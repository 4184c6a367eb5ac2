"""A scan of all messages finds the same as a scan from the newest one back, in as many steps as it needs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.records import MessageHits
from sources.storage.contract import MessageSearch
from sources.storage.sqlite.search.exact import FullScan
from sources.storage.sqlite.search.substring import find
from tests.sources.storage.sqlite.test_message_indexes import ADD_CONVERSATION, ADD_MESSAGE, CHANGES, prepare

NO_HITS = MessageHits((), is_complete=False)
texts = st.text("aAbBßẞK K%_\\é", max_size=4)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield prepare(connection)


@given(
    contents=st.lists(texts, max_size=12),
    titles=st.tuples(texts, texts, texts),
    text=texts.filter(bool),
    in_titles=st.booleans(),
    conversation_id=st.sampled_from([None, "c1", "c3", "absent"]),
    limit=st.integers(1, 6),
    rows_per_step=st.integers(1, 20),
)
def test_full_scan_finds_what_a_scan_by_time_finds(
    contents: list[str],
    titles: tuple[str, str, str],
    text: str,
    in_titles: bool,
    conversation_id: str | None,
    limit: int,
    rows_per_step: int,
) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection)
        for number, title in enumerate(titles, 1):
            connection.execute(ADD_CONVERSATION, (number, title))
        for number, content in enumerate(contents, 1):
            # The fixture's times repeat after 50 messages, so that rowids are not in the order of the times.
            connection.execute(ADD_MESSAGE, (number * 17, number % 3 + 1, content))
        connection.execute(CHANGES["delete conversation"], {"conversation": 2})
        connection.execute(CHANGES["delete"], {"message": 34})
        connection.execute(CHANGES["mark"], {"message": 51})
        search = MessageSearch(
            text=text, in_titles=in_titles, conversation_id=conversation_id, limit=limit, deadline_ms=1_000
        )
        for is_agent in (True, False):
            scan = FullScan(search, rows_per_step, NO_HITS, is_agent=is_agent)
            while not scan.is_complete:
                scan.step(connection)

            assert scan.matches() == find(connection, search, 1_000, is_agent=is_agent)


def test_incomplete_scan_returns_what_it_found(connection: sqlite3.Connection) -> None:
    connection.execute(ADD_CONVERSATION, (1, "talk"))
    for number in range(1, 7):
        connection.execute(ADD_MESSAGE, (number, 1, f"tea {number}"))
    scan = FullScan(MessageSearch(text="TEA", limit=4, deadline_ms=1_000), 2, NO_HITS, is_agent=True)

    scan.step(connection)

    assert (scan.matches().rowids, scan.matches().is_complete) == ((6, 5), False)
