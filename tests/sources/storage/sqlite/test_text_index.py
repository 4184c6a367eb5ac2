"""Index forms, and consistency of the index with its rows."""

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.storage.sqlite.index.text_index import apply_queue, save_segment_version
from sources.storage.sqlite.schema.kinds import migrate
from sources.storage.tables.sql import index_form
from sources.text.folding import fold
from sources.text.segmentation import TOKENIZER
from tests.cases import each_case
from tests.sources.storage.sqlite.conftest import INDEX, WORDS
from tests.tiers import examples

LATIN = "".join(map(chr, range(0x20, 0x250))) + "’“”–—…€™²½\u00ad\u200b"


@pytest.fixture(scope="module")
def tokenizer() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute(f'CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize="{TOKENIZER}")')
    connection.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (texts, instance)")
    yield connection
    connection.close()


def tokens(connection: sqlite3.Connection, text: str) -> list[str]:
    """Returns the tokens that FTS5 produces from a text."""
    connection.execute("DELETE FROM texts")
    connection.execute("INSERT INTO texts (rowid, text) VALUES (1, ?)", (text,))
    return [term for (term,) in connection.execute("SELECT term FROM tokens ORDER BY offset")]


def is_indexed_as_counted(connection: sqlite3.Connection, text: str) -> bool:
    """Whether the tokens in the index are the words that scoring counts."""
    form = index_form(text)
    stored = text if form is None else form
    return tokens(connection, stored) == tokens(connection, fold(stored))


@each_case("text", ["Plain English prose, with “quotes” – and café.", "Ünïcödé", "a_b c-d 10:30", ""])
def test_western_prose_needs_no_index_form(text: str) -> None:
    assert index_form(text) is None


@each_case("text", ["東京", "C++", "getUserName", "Straße", "smørrebrød", "🎉", "ёлка", "m²", "soft\u00adhyphen"])
def test_text_that_fts5_tokenizes_differently_has_an_index_form(text: str) -> None:
    assert index_form(text) is not None


def test_every_latin_letter_is_indexed_and_counted_alike(tokenizer: sqlite3.Connection) -> None:
    different = [hex(ord(letter)) for letter in LATIN if not is_indexed_as_counted(tokenizer, f"a{letter}b {letter} x")]
    assert different == []


@settings(max_examples=examples(150))
@given(text=st.one_of(st.text(st.sampled_from(LATIN), max_size=60), st.text(max_size=40)))
def test_every_text_is_indexed_and_counted_alike(tokenizer: sqlite3.Connection, text: str) -> None:
    text = text.replace("\0", "").encode("utf-8", "ignore").decode()
    assert is_indexed_as_counted(tokenizer, text)


operations = st.lists(
    st.tuples(
        st.sampled_from(["add", "change", "form", "remove", "apply"]), st.integers(1, 4), st.text("ab ", max_size=6)
    ),
    max_size=25,
)


@settings(max_examples=examples(75))
@given(operations=operations)
def test_index_equals_its_rows_after_any_changes(operations: list[tuple[str, int, str]]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    migrate(WORDS, connection)
    for operation, rowid, text in operations:
        match operation:
            case "add":
                connection.execute("INSERT OR IGNORE INTO words VALUES (?, ?, NULL)", (rowid, text))
            case "change":
                connection.execute("UPDATE words SET text = ? WHERE id = ?", (text, rowid))
            case "form":
                connection.execute("UPDATE words SET text_seg = ? WHERE id = ?", (text, rowid))
            case "remove":
                connection.execute("DELETE FROM words WHERE id = ?", (rowid,))
            case _:
                apply_queue(connection, INDEX)
    apply_queue(connection, INDEX)
    connection.execute("INSERT INTO words_index (words_index, rank) VALUES ('integrity-check', 1)")
    indexed = {rowid for (rowid,) in connection.execute("SELECT id FROM words_index_docsize")}
    assert indexed == {rowid for (rowid,) in connection.execute("SELECT id FROM words")}
    connection.close()


def test_new_file_has_the_current_segment_version() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(WORDS, connection)
    before = connection.execute("SELECT * FROM state").fetchall()
    save_segment_version(connection)
    assert connection.execute("SELECT * FROM state").fetchall() == before
    connection.close()
