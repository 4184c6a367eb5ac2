"""Counting the words of a query in a text: as often as FTS5 finds them there."""

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.query import Phrase, Prefix, Term, Word, parse
from sources.storage.sqlite.search.counting import Counter, best_field
from sources.text.segmentation import TOKENIZER, segment

WORDS = (
    "hope", "hoping", "hopeful", "hop", "happy", "happier", "happiness", "relate", "relational", "sky", "skies", "ties",
    "tie", "visible", "visibility", "run", "runs", "running", "generate", "generation", "generations", "general",
    "café", "naïve", "Straße", "東京", "京都", "C++", "a", "ab", "abc", "v1.2", "1.2", "getUserName",
)  # fmt: skip


@pytest.fixture(scope="module")
def index() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute(f'CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize="{TOKENIZER}")')
    yield connection
    connection.close()


def found_by_fts5(connection: sqlite3.Connection, text: str, phrase: Phrase | Prefix) -> int:
    """How many places FTS5 would highlight, one after the other."""
    connection.execute("DELETE FROM texts")
    connection.execute("INSERT INTO texts VALUES (?)", (segment(text),))
    quoted = f'"{" ".join(phrase.tokens)}"' + ("*" if isinstance(phrase, Prefix) else "")
    sql = "SELECT highlight(texts, 0, '\x01', '\x02') FROM texts WHERE texts MATCH ?"
    row = connection.execute(sql, (quoted,)).fetchone()
    return row[0].count("\x01") if row else 0


def count(text: str, phrase: Phrase | Prefix) -> int:
    [counted] = Counter([Term(Word(phrase.text, (phrase,)), 1)]).count(segment(text))
    return counted


@settings(max_examples=300, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=20), wanted=st.sampled_from(WORDS))
def test_a_word_is_counted_in_all_its_forms(index: sqlite3.Connection, words: list[str], wanted: str) -> None:
    text = " ".join(words)
    for term in parse(wanted).terms:
        for phrase in term.word.alternatives:
            if len(phrase.tokens) == 1:
                assert count(text, phrase) == found_by_fts5(index, text, phrase)


@settings(max_examples=300, deadline=None)
@given(
    words=st.lists(st.sampled_from(["run", "running", "hope", "hoping", "sky"]), max_size=12),
    wanted=st.lists(st.sampled_from(["runs", "hope", "skies"]), min_size=2, max_size=3, unique=True),
)
def test_words_in_a_row_are_counted_where_they_stand_in_a_row(
    index: sqlite3.Connection, words: list[str], wanted: list[str]
) -> None:
    phrase = Phrase(" ".join(wanted), tuple(wanted))
    assert count(" ".join(words), phrase) == found_by_fts5(index, " ".join(words), phrase)


@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=6), max_size=5),
    query=st.sampled_from(["hope", 'happy "running skies"', "gener* tea", "v1.2 ab", "runs hopeful sky"]),
)
def test_many_texts_are_counted_as_one_by_one(texts: list[list[str]], query: str) -> None:
    counter = Counter(parse(query).terms)
    forms = [segment(" ".join(words)) for words in texts]
    assert counter.count_each(forms) == [tuple(counter.count(form)) for form in forms]


def test_a_stump_is_counted_at_the_beginning_of_words() -> None:
    assert count("teas steam team", Prefix("tea", ("tea",))) == 2
    assert count("green teas, green steam", Prefix("green te", ("green", "te"))) == 1


def test_of_alternatives_the_most_frequent_counts() -> None:
    word = Word("v1.2", (Phrase("1 2", ("1", "2")), Phrase("v1 2", ("v1", "2"))))
    assert Counter([Term(word, 1)]).count("1 2 v1 2 1 2") == [2]


def test_the_best_field_holds_most_of_the_words() -> None:
    counter = Counter(parse("tea milk").terms)
    fields = {"empty": "", "first": "nothing", "often": "tea tea tea", "both": "milk and tea"}
    assert best_field(fields, counter) == ("both", "milk and tea")
    assert best_field({"empty": "", "first": "nothing", "second": "none"}, counter) == ("first", "nothing")
    assert best_field({"empty": ""}, counter) is None
