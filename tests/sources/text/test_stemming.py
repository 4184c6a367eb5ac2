"""Tests of the stemmer against FTS5's `porter` tokenizer, and of the stop words."""

import re
from pydoc_data.topics import topics

from hypothesis import given
from hypothesis import strategies as st

from sources.text.segmentation import STOPWORDS, TOKENIZER, segment, stem, stem_prefix, tokenize
from tests.sources.text.samples import MIXED_TEXTS, fts5_tokens

ENGLISH = sorted({word.lower() for topic in topics.values() for word in re.findall("[A-Za-z]+", topic)})
ROOTS = """
    hop happi relat generaliz organ univers troubl conflat fall fizz sky nation oper decis form analog y ye s ee
"""
ENDINGS = """
    s es ies sses ss ed ing eed y ational tional enci anci izer logi bli alli entli eli ousli ization ation ator alism
    iveness fulness ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic able ible ant
    ement ment ent ion sion tion ou ism ate iti ous ive ize e l ll ly
"""


def test_stems_of_english_words_equal_those_of_fts5() -> None:
    roots, endings = ROOTS.split(), ENDINGS.split()
    combinations = [root + one + two for root in roots for one in endings for two in ["", *endings[::5]]]
    samples = [*ENGLISH, *combinations, "a" * 64, "nations" * 10]
    assert len(samples) > 10_000
    expected = dict(zip(samples, fts5_tokens(samples, "porter unicode61"), strict=True))
    assert {word: [stem(word)] for word in samples} == expected


@given(st.text("aeiouystlnrgdbez", min_size=1, max_size=12))
def test_stems_of_random_words_equal_those_of_fts5(word: str) -> None:
    assert fts5_tokens([word], "porter unicode61") == [[stem(word)]]


@given(MIXED_TEXTS)
def test_stems_of_any_token_equal_those_of_fts5(text: str) -> None:
    ours = [stem(token) for token in tokenize(text) if token.isascii() or not re.search("[a-z]", token)]
    theirs = fts5_tokens([segment(text)], TOKENIZER)[0]
    assert [token for token in ours if token not in theirs] == []


@given(st.sampled_from(ENGLISH) | st.text("aeiouystlnrgdbez", min_size=1, max_size=12))
def test_every_word_begins_with_the_prefix_of_its_stem(word: str) -> None:
    assert word.startswith(stem_prefix(stem(word)))


def test_prefix_of_a_stem_leaves_out_a_letter_that_stemming_changes() -> None:
    assert [stem_prefix(stem(word)) for word in ("happy", "shaping", "visibility", "eyed")] == [
        "happ",
        "shap",
        "visib",
        "e",
    ]
    assert stem_prefix(stem("runs")) == "run"


def test_stop_words_are_single_tokens() -> None:
    assert len(STOPWORDS) >= 150
    assert {token for word in STOPWORDS for token in tokenize(word)} == STOPWORDS
