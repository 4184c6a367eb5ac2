"""Tests of excerpts: literal, on one line and within the limit."""

from hypothesis import given
from hypothesis import strategies as st

from sources.text.chunking import first_line, first_sentence, shorten
from tests.cases import each_case


@each_case(
    ("text", "sentence"),
    [
        ("Fix the login. Then the tests.", "Fix the login."),
        ("\n\n  Why does v1.2 fail?  Look.", "Why does v1.2 fail?"),
        ("これは何ですか。次です。", "これは何ですか。"),
        ("no mark at all\nsecond line", "no mark at all"),
        ("", ""),
        ("  \n ", ""),
    ],
)
def test_first_sentence_ends_at_its_punctuation(text: str, sentence: str) -> None:
    assert first_sentence(text, 100) == sentence


@given(st.text(), st.integers(2, 40))
def test_excerpt_is_one_literal_line_within_the_limit(text: str, limit: int) -> None:
    line = " ".join(text.split())
    for excerpt in (shorten(text, limit), first_line(text, limit), first_sentence(text, limit)):
        assert len(excerpt) <= limit
        assert len(excerpt.splitlines()) <= 1
        assert " ".join(excerpt.removesuffix("…").split()) in line
