"""Beginnings of texts are quoted, on one line and within a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.text.sentences import first_line, first_sentence, shorten


@pytest.mark.parametrize(
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
def test_a_sentence_ends_at_its_mark(text: str, sentence: str) -> None:
    assert first_sentence(text, 100) == sentence


@given(st.text(), st.integers(2, 40))
def test_what_is_shortened_is_one_line_within_the_limit_and_said_as_it_stands(text: str, limit: int) -> None:
    whole = " ".join(text.split())
    for short in (shorten(text, limit), first_line(text, limit), first_sentence(text, limit)):
        assert len(short) <= limit
        assert len(short.splitlines()) <= 1
        assert " ".join(short.removesuffix("…").split()) in whole
