"""Tests of grapheme boundaries."""

from sources.text.folding import grapheme_boundary_after, grapheme_boundary_before, is_grapheme_boundary
from tests.cases import each_case


@each_case(
    "graphemes",
    [
        ["a", "b"],
        ["e\u0301", "x"],
        ["👩‍💻", "👩🏽‍🚀", "❤️", "👍🏽"],
        ["🇩🇪", "🇫🇷", "🇯"],
        ["क्षि", "ता"],
        ["ก้", "น้ำ", "ร"],
        ["한", "\u1112\u1161\u11ab", "\u1100\u116e"],
        ["\r\n", "\n", "\r"],
        ["🏴󠁧󠁢󠁳󠁣󠁴󠁿", "a"],
        ["ﾃﾞ", "ﾀ"],
        ["\n", "\u0301"],
    ],
)
def test_boundaries_are_between_graphemes(graphemes: list[str]) -> None:
    text = "".join(graphemes)
    boundaries = [len("".join(graphemes[:count])) for count in range(len(graphemes) + 1)]
    assert [index for index in range(len(text) + 1) if is_grapheme_boundary(text, index)] == boundaries
    assert {
        find(text, index)
        for index in range(len(text) + 1)
        for find in (grapheme_boundary_before, grapheme_boundary_after)
    } == set(boundaries)


def test_index_inside_a_grapheme_moves_to_the_boundary_before_or_after_it() -> None:
    assert (grapheme_boundary_before("a👩‍💻b", 3), grapheme_boundary_after("a👩‍💻b", 3)) == (1, 4)
    assert (grapheme_boundary_before("abc", 2), grapheme_boundary_after("abc", 2)) == (2, 2)


def test_overlong_grapheme_is_split() -> None:
    zalgo = "e" + "\u0301" * 1_000
    assert grapheme_boundary_before(zalgo, 500) == 500
    assert grapheme_boundary_after(zalgo, 500) < 1_000
