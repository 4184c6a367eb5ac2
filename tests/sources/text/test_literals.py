"""Literal comparison: a text contains each of its parts that consists of whole words."""

from hypothesis import given
from hypothesis import strategies as st

from sources.query import parse_literal
from sources.search.snippets import Highlighter
from sources.text.segmentation import contains_literal, literal_form

words = st.sampled_from(
    [
        "ERR_AUTH_MISSING",
        "getUserName()",
        "C++",
        "v1.2.3",
        "refresh",
        "tokens",
        "naïve",
        "京都の寺",
        "-v",
        "a/b.py",
        '"x"',
    ]
)


@given(st.lists(words, min_size=1, max_size=6), st.data())
def test_part_of_a_text_is_found_as_a_phrase_and_literally(parts: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(parts) - 1))
    end = data.draw(st.integers(start + 1, len(parts)))
    text, part = " ".join(parts), "\n ".join(parts[start:end]).upper()

    assert contains_literal(text, literal_form(part))
    query = parse_literal(part)
    assert query.expression is None or Highlighter(query.terms).matches(text)


@given(st.text(), st.text())
def test_any_texts_can_be_compared(text: str, literal: str) -> None:
    assert contains_literal(text, literal_form(literal)) in (True, False)
    parse_literal(literal)


def test_words_are_compared_whole() -> None:
    assert not contains_literal("tokens", "token")
    assert not contains_literal("a token", "oken")
    assert contains_literal("ERR_AUTH_MISSING", "err_auth")
    assert contains_literal("昨日は京都へ", "京都")
    assert contains_literal("Cafe\u0301", literal_form("café"))
