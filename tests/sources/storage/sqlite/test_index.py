"""The forms that are stored for the index, and that the index follows its rows."""

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.storage.sqlite.index.text_index import apply_queue, index_form, save_segment_version, stored_index_form
from sources.storage.sqlite.schema.migrations import migrate
from sources.text.segmentation import TOKENIZER
from tests.sources.storage.sqlite.conftest import INDEX, WORDS

LATIN = "".join(map(chr, range(0x20, 0x250))) + "’“”–—…€™²½\u00ad\u200b"


@pytest.fixture(scope="module")
def tokenizer() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute(f'CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize="{TOKENIZER}")')
    connection.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (texts, instance)")
    yield connection
    connection.close()


def tokens(connection: sqlite3.Connection, text: str) -> list[str]:
    """What FTS5 makes of a text."""
    connection.execute("DELETE FROM texts")
    connection.execute("INSERT INTO texts (rowid, text) VALUES (1, ?)", (text,))
    return [term for (term,) in connection.execute("SELECT term FROM tokens ORDER BY offset")]


def agrees(connection: sqlite3.Connection, text: str) -> bool:
    """Whether the index gets the same tokens from the stored form, or from the text where none is stored."""
    form = index_form(text)
    stored = text if form is None else form
    return tokens(connection, stored) == tokens(connection, stored_index_form(text, form))


@pytest.mark.parametrize("text", ["Plain English prose, with “quotes” – and café.", "Ünïcödé", "a_b c-d 10:30", ""])
def test_western_prose_is_stored_once(text: str) -> None:
    assert index_form(text) is None


@pytest.mark.parametrize(
    "text", ["東京", "C++", "getUserName", "Straße", "smørrebrød", "🎉", "ёлка", "m²", "soft\u00adhyphen"]
)
def test_what_fts5_would_read_otherwise_has_a_form_of_its_own(text: str) -> None:
    assert index_form(text) is not None


def test_no_single_letter_is_indexed_otherwise_than_it_is_counted(tokenizer: sqlite3.Connection) -> None:
    wrong = [hex(ord(letter)) for letter in LATIN if not agrees(tokenizer, f"a{letter}b {letter} x")]
    assert wrong == []


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(st.text(st.sampled_from(LATIN), max_size=60), st.text(max_size=40)))
def test_no_text_is_indexed_otherwise_than_it_is_counted(tokenizer: sqlite3.Connection, text: str) -> None:
    text = text.replace("\0", "").encode("utf-8", "ignore").decode()
    assert agrees(tokenizer, text)


operations = st.lists(
    st.tuples(
        st.sampled_from(["add", "change", "form", "remove", "drain"]), st.integers(1, 4), st.text("ab ", max_size=6)
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(operations=operations)
def test_after_any_changes_the_drained_index_equals_its_rows(operations: list[tuple[str, int, str]]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    migrate(WORDS, connection)
    for operation, number, text in operations:
        match operation:
            case "add":
                connection.execute("INSERT OR IGNORE INTO words VALUES (?, ?, NULL)", (number, text))
            case "change":
                connection.execute("UPDATE words SET text = ? WHERE id = ?", (text, number))
            case "form":
                connection.execute("UPDATE words SET text_seg = ? WHERE id = ?", (text, number))
            case "remove":
                connection.execute("DELETE FROM words WHERE id = ?", (number,))
            case _:
                apply_queue(connection, INDEX)
    apply_queue(connection, INDEX)
    connection.execute("INSERT INTO words_index (words_index, rank) VALUES ('integrity-check', 1)")
    indexed = {number for (number,) in connection.execute("SELECT id FROM words_index_docsize")}
    assert indexed == {number for (number,) in connection.execute("SELECT id FROM words")}
    connection.close()


def test_a_new_file_is_marked_with_the_version_of_its_forms() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(WORDS, connection)
    before = connection.execute("SELECT * FROM state").fetchall()
    save_segment_version(connection)
    assert connection.execute("SELECT * FROM state").fetchall() == before
    connection.close()
