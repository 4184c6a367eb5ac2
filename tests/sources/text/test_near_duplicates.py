"""Texts that are the same or nearly so are found; those that only share a topic are not."""

from hypothesis import given
from hypothesis import strategies as st

from sources.text.near_duplicates import SIMILAR_SHARE, DuplicateFinder, TextGroup

WORDS = [
    "the",
    "galleon",
    "left",
    "harbour",
    "at",
    "dawn",
    "while",
    "fog",
    "stayed",
    "over",
    "old",
    "quay",
    "and",
    "gulls",
    "cried",
    "above",
    "mast",
]


def prose(start: int, length: int) -> str:
    """Returns a text in which every run of words is different."""
    return " ".join(f"{WORDS[number % len(WORDS)]}{number}" for number in range(start, start + length))


def find(**texts: str) -> list[TextGroup]:
    finder = DuplicateFinder()
    for key, text in texts.items():
        finder.add(key, text)
    return finder.groups()


def test_same_words_are_a_group_whatever_their_case_punctuation_and_length() -> None:
    groups = find(a="Hello, World!", b="hello world", c="Hello there", d="", e="  \n", f="你好世界", g="你好 世界。")

    assert {group.keys for group in groups} == {("a", "b"), ("f", "g")}
    assert {group.share for group in groups} == {1.0}


def test_nearly_the_same_texts_are_a_group_and_different_ones_are_not() -> None:
    text = prose(0, 400)
    edited = text.replace("galleon49", "frigate").replace("harbour147", "bay")
    half = f"{prose(0, 200)} {prose(9_000, 200)}"

    groups = find(original=text, copy=f"{edited} And one more sentence.", half=half, other=prose(5_000, 400))

    assert [group.keys for group in groups] == [("original", "copy")]
    assert SIMILAR_SHARE <= groups[0].share < 1


def test_texts_that_differ_are_never_shown_as_the_same() -> None:
    text = prose(0, 5_000)
    [group] = find(a=text, b=f"{text} end")
    assert group.share < 1


def test_many_copies_of_boilerplate_are_one_group() -> None:
    text = prose(0, 300)
    groups = find(**{f"copy{number}": f"{text} number {number}" for number in range(300)})
    assert [len(group.keys) for group in groups] == [300]


@given(st.lists(st.text(max_size=300), max_size=20))
def test_every_text_is_in_at_most_one_group_and_equal_texts_are_in_the_same(texts: list[str]) -> None:
    groups = find(**{str(number): text for number, text in enumerate(texts)})

    keys = [key for group in groups for key in group.keys]
    assert len(keys) == len(set(keys))
    group_of = {key: number for number, group in enumerate(groups) for key in group.keys}
    for number, text in enumerate(texts):
        for other in range(number):
            if texts[other] == text and any(character.isalnum() for character in text):
                assert group_of.get(str(other)) == group_of.get(str(number)) is not None
