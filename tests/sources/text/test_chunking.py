"""Chunks are whole sentences that cover a text; nothing is lost, repeated too often, or cut through a letter."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.text.chunking import Chunk, chunk, cut_after, cut_before, is_border

TEXTS = st.one_of(
    st.text(max_size=300),
    st.text("ab. !?\n\r\t#-1", max_size=300),
    st.text("e\u0301\u200d👩💻🇩🇪🏽ก้ำक्षि한\u1112\u1161\u11ab。！ \n", max_size=200),
    st.lists(
        st.sampled_from(
            ["# Title\n", "## Part\n\n", "Dr. Who came. ", "Really? ", "今日は晴れ。", "```\n", "\n\n", "- one\n", "a "]
        ),
        max_size=40,
    ).map("".join),
)  # fmt: skip


def pieces(text: str, size_chars: int, overlap_chars: int = 0) -> list[str]:
    return [text[found.start : found.end] for found in chunk(text, size_chars, overlap_chars)]


def sentence_ends(text: str, expected: list[int]) -> list[int]:
    """Where a first chunk ends that has room for all but the last character of the sentence after each expected end."""
    return [chunk(text, following - 1, 0)[0].end for following in [*expected[1:], len(text)]]


# -- what every cutting keeps ------------------------------------------------------------------------------------------


@settings(max_examples=2_000)
@given(TEXTS, st.integers(1, 80), st.integers(0, 60))
def test_chunks_cover_a_text_in_order_within_size_and_overlap(text: str, size: int, overlap: int) -> None:
    chunks = chunk(text, size, overlap)
    assert [found.index for found in chunks] == list(range(len(chunks)))
    assert [chunks[0].start, chunks[-1].end] == [0, len(text)] if text else not chunks
    for before, after in pairwise(chunks):
        assert before.start < after.start <= before.end < after.end
        assert before.end - after.start <= min(overlap, size // 2)
    for found in chunks:
        assert is_border(text, found.start)
        is_one_grapheme = not any(is_border(text, place) for place in range(found.start + 1, found.end))
        assert found.end - found.start <= size or is_one_grapheme


@given(TEXTS, st.integers(1, 80), st.integers(0, 60))
def test_the_same_text_is_always_cut_alike(text: str, size: int, overlap: int) -> None:
    assert chunk(text, size, overlap) == chunk(text, size, overlap)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "." * 1_000_000,
        "\n" * 1_000_000,
        "e" + "\u0301" * 1_000_000,
        "🇩" * 1_000_000,
        "👨‍👩‍👧‍👦" * 100_000,
        "# a\n" * 200_000,
        '."' * 500_000,
        "\n- " * 300_000,
        "a\n===\n" * 100_000,
        "The cat sat on the mat. " * 100_000,
        "今天天气很好。" * 150_000,
    ],
    ids=lambda text: f"{len(text)} of {text[:8]!a}",
)
def test_no_text_is_too_long_or_too_strange(text: str) -> None:
    chunks = chunk(text, 1_000, 200)
    assert (chunks[0].start, chunks[-1].end) == (0, len(text))
    assert max(found.end - found.start for found in chunks) <= 1_000


def test_a_size_or_overlap_out_of_range_is_brought_into_it() -> None:
    assert chunk("abc", 0, -5) == [Chunk(0, 0, 1), Chunk(1, 1, 2), Chunk(2, 2, 3)]
    assert chunk("", 100, 10) == []


# -- sentences ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "One comes here. |Two comes here! |Is it three? |It is...",
        "Dr. Smith and Mrs. Jones left the U.S. in Jan. 2020 with J. R. Tolkien, e.g. by ship. |They came back.",
        "See Fig. 3 and No. 5 on p. 7 for it. |No. |He left.",
        'He said "Stop!" |She (who knew.) |Nobody else did.',
        "Version 3.14 is out at example.com today. |Get it.",
        "It was... odd. |Then it was not at all.",
        "今日は晴れです。|「本当ですか？」|はい、そうです！|では行きましょう。",
        "कल बारिश हुई। |आज धूप है।",
        "هل أنت هنا؟ |نعم أنا هنا الآن.",
        "A line that\nwraps is one. \n|Next",
        "A paragraph without end\n\n|Another one\n\n|- first item\n|- second item\n|12. twelfth item",
        "Er kam z. B. am 3. März bzw. später. |Sie blieb.",
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_a_sentence_ends_where_it_ends(text: str) -> None:
    ends = list(accumulate(map(len, text.split("|")[:-1])))
    assert sentence_ends(text.replace("|", ""), ends) == ends


def test_as_many_sentences_as_fit_are_together() -> None:
    assert pieces("One. Two. Three. Four. Five.", 16) == ["One. Two. ", "Three. Four. ", "Five."]


def test_the_last_sentences_of_a_chunk_begin_the_next() -> None:
    assert pieces("One is. Two is. Three is. Four is.", 20, 10) == [
        "One is. Two is. ",
        "Two is. Three is. ",
        "Three is. Four is.",
    ]


def test_a_sentence_too_long_to_be_repeated_gives_its_last_words() -> None:
    first, second = pieces("This sentence is rather long. And this one follows.", 40, 15)
    assert (first, second) == ("This sentence is rather long. ", "rather long. And this one follows.")


def test_a_sentence_too_long_for_a_chunk_is_cut_between_words() -> None:
    assert pieces("alpha beta gamma delta epsilon", 12) == ["alpha beta ", "gamma delta ", "epsilon"]


def test_a_text_without_spaces_is_cut_between_graphemes() -> None:
    assert pieces("👩‍💻👩‍💻👩‍💻", 7) == ["👩‍💻👩‍💻", "👩‍💻"]
    assert pieces("東京都庁の歴史", 4) == ["東京都庁", "の歴史"]
    assert pieces("東京都庁の歴史", 4, 2) == ["東京都庁", "庁の歴史"]


# -- headings ----------------------------------------------------------------------------------------------------------


def test_a_heading_begins_a_chunk_and_stays_with_its_text() -> None:
    text = "Intro here.\n\n# First\n\nOne. Two.\n## Second\nThree.\nUnder\n=====\nFour."
    assert pieces(text, 100, 20) == [
        "Intro here.\n\n",
        "# First\n\nOne. Two.\n",
        "## Second\nThree.\n",
        "Under\n=====\nFour.",
    ]


def test_headings_without_text_between_them_stay_together() -> None:
    assert pieces("# Book\n\n## Chapter\nText.\n", 100) == ["# Book\n\n## Chapter\nText.\n"]


def test_a_heading_is_not_left_alone_when_its_first_sentence_is_long() -> None:
    first, *_ = pieces("# Title\nThis first sentence is quite long for it.\n", 30)
    assert first == "# Title\nThis first sentence "


def test_a_comment_in_a_block_of_code_is_no_heading() -> None:
    text = "Before.\n```sh\n# a comment\nls\n```\nAfter.\n"
    assert pieces(text, 100) == [text]


def test_a_hash_inside_a_line_is_no_heading() -> None:
    assert pieces("Issue #5 and #tag\n#nospace\n", 100) == ["Issue #5 and #tag\n#nospace\n"]


# -- graphemes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
    ids=lambda graphemes: ascii(graphemes[0]),
)
def test_a_text_is_cut_between_graphemes_only(graphemes: list[str]) -> None:
    text = "".join(graphemes)
    borders = [len("".join(graphemes[:count])) for count in range(len(graphemes) + 1)]
    assert [place for place in range(len(text) + 1) if is_border(text, place)] == borders
    assert {cut(text, place) for place in range(len(text) + 1) for cut in (cut_before, cut_after)} == set(borders)


def test_a_cut_moves_to_the_nearest_border() -> None:
    assert (cut_before("a👩‍💻b", 3), cut_after("a👩‍💻b", 3)) == (1, 4)
    assert (cut_before("abc", 2), cut_after("abc", 2)) == (2, 2)


def test_a_grapheme_without_end_is_cut_all_the_same() -> None:
    zalgo = "e" + "\u0301" * 1_000
    assert cut_before(zalgo, 500) == 500
    assert cut_after(zalgo, 500) < 1_000
