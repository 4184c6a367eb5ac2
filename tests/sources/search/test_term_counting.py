"""Tests of term counting: a term is counted as often as FTS5 finds it."""

import sqlite3
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.query import Phrase, Prefix, Term, Word, parse
from sources.search.term_matching import TermCounter, TermMatcher, best_field, join_letters
from sources.storage.tables.sql import index_form
from sources.text.folding import fold_joined
from sources.text.segmentation import TOKENIZER, segment
from tests.tiers import examples

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


def count_by_fts5(connection: sqlite3.Connection, text: str, phrase: Phrase | Prefix) -> int:
    """Returns how many matches FTS5 highlights."""
    connection.execute("DELETE FROM texts")
    connection.execute("INSERT INTO texts VALUES (?)", (segment(text),))
    quoted = f'"{" ".join(phrase.tokens)}"' + ("*" if isinstance(phrase, Prefix) else "")
    sql = "SELECT highlight(texts, 0, '\x01', '\x02') FROM texts WHERE texts MATCH ?"
    row = connection.execute(sql, (quoted,)).fetchone()
    return row[0].count("\x01") if row else 0


def count_each(counter: TermCounter, forms: Sequence[str]) -> list[list[int]]:
    """Returns how often each term matches in each text."""
    by_term = counter.count_each(fold_joined(forms))
    return [[counts.get(number, 0) for counts in by_term] for number in range(len(forms))]


def count(text: str, phrase: Phrase | Prefix) -> int:
    [result] = TermCounter([Term(Word(phrase.text, (phrase,)), 1)]).count(segment(text))
    return result


@settings(max_examples=examples(150))
@given(words=st.lists(st.sampled_from(WORDS), max_size=20), word=st.sampled_from(WORDS))
def test_word_is_counted_as_often_as_fts5_finds_it(index: sqlite3.Connection, words: list[str], word: str) -> None:
    text = " ".join(words)
    for term in parse(word).terms:
        for phrase in term.word.alternatives:
            if len(phrase.tokens) == 1:
                assert count(text, phrase) == count_by_fts5(index, text, phrase)


@settings(max_examples=examples(150))
@given(
    words=st.lists(st.sampled_from(["run", "running", "hope", "hoping", "sky"]), max_size=12),
    tokens=st.lists(st.sampled_from(["runs", "hope", "skies"]), min_size=2, max_size=3, unique=True),
)
def test_phrase_is_counted_as_often_as_fts5_finds_it(
    index: sqlite3.Connection, words: list[str], tokens: list[str]
) -> None:
    phrase = Phrase(" ".join(tokens), tuple(tokens))
    assert count(" ".join(words), phrase) == count_by_fts5(index, " ".join(words), phrase)


@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=6), max_size=5),
    query=st.sampled_from(["hope", 'happy "running skies"', '"hope run"', "gener* tea", "v1.2 ab", "runs hopeful sky"]),
)
def test_several_texts_are_counted_like_each_alone(texts: list[list[str]], query: str) -> None:
    counter = TermCounter(parse(query).terms)
    forms = [segment(" ".join(words)) for words in texts]
    assert count_each(counter, forms) == [counter.count(form) for form in forms]


@given(
    texts=st.lists(st.text("abehopr runing\n-.,éßøÆ东京“”—Я\u0301", max_size=40), min_size=1, max_size=6),
    query=st.sampled_from(["hope", '"ab ab"', "ho* run", "éa 东京", "я ß"]),
)
def test_stored_texts_are_counted_like_their_index_forms(texts: list[str], query: str) -> None:
    counter = TermCounter(parse(query).terms)
    stored = [text if (form := index_form(text)) is None else form for text in texts]

    assert count_each(counter, stored) == [counter.count(segment(text)) for text in texts]


def test_no_phrase_matches_across_two_texts() -> None:
    counter = TermCounter(parse('"hope run"').terms)
    assert counter.count_each(fold_joined(["I hope", "run", "hope run"])) == [{2: 1}]
    assert counter.count_each(fold_joined(["надежда hope", "run"])) == [{}]


def test_prefix_is_counted_at_the_beginning_of_words() -> None:
    assert count("teas steam team", Prefix("tea", ("tea",))) == 2
    assert count("green teas, green steam", Prefix("green te", ("green", "te"))) == 1


def test_most_frequent_alternative_is_counted() -> None:
    word = Word("v1.2", (Phrase("1 2", ("1", "2")), Phrase("v1 2", ("v1", "2"))))
    assert TermCounter([Term(word, 1)]).count("1 2 v1 2 1 2") == [2]


def test_best_field_matches_most_terms() -> None:
    counter = TermCounter(parse("tea milk").terms)
    fields = {"empty": "", "first": "nothing", "often": "tea tea tea", "both": "milk and tea"}
    unmatched = {"empty": "", "first": "nothing", "second": "none"}
    camel_case = {"first": "nothing", "second": "getTea"}

    assert best_field(fields, counter) == ("both", "milk and tea")
    assert best_field(unmatched, counter) == ("first", "nothing")
    assert best_field({"empty": ""}, counter) is None
    assert best_field(camel_case, counter) == ("second", "getTea")
    assert best_field(fields, TermCounter(())) == ("first", "nothing")


@pytest.mark.parametrize(
    ("alternatives", "looked_for"),
    [
        ((Phrase("дорога", ("дорога",)), Prefix("дорог", ("дорог",))), ["дорог"]),
        (
            (Prefix("organi", ("organi",)), Phrase("organ", ("organ",)), Prefix("organic", ("organic",))),
            ["organi", "organ"],
        ),
        ((Phrase("東京", ("東京",)), Prefix("東", ("東",))), ["東京", "東"]),  # a match of the prefix has one letter
    ],
)
def test_alternatives_that_a_prefix_covers_are_not_looked_for(
    alternatives: tuple[Phrase | Prefix, ...], looked_for: list[str]
) -> None:
    assert [one.beginning for one in TermMatcher(Word("word", alternatives)).alternatives] == looked_for


@pytest.mark.parametrize("query", ["แม่น้ำโขง", "東京の塔", "東 tower", "ในกรุงเทพ 2015"])
def test_terms_of_unspaced_scripts_are_counted_in_letters_as_in_pairs(query: str) -> None:
    titles = ["แม่น้ำโขง", "東京 Tower", ""]
    texts = ["น้ำในแม่น้ำโขง\nในกรุงเทพฯ 2015 น้ำ", "東京タワーは東京の塔、tower", "ทํา น\u200bำ 塔の東\u00a0京"]
    counter = TermCounter(parse(query).terms)
    forms = fold_joined([*map(segment, titles), *map(segment, texts)])
    in_letters = counter.count_with_letters(fold_joined([*map(segment, titles)]), forms, join_letters(texts))
    assert in_letters == counter.count_each(forms)
    assert any(in_letters)
