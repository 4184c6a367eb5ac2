"""Tests of chunking: chunks are whole sentences that cover the text, overlap within limits and split no grapheme."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.text.chunking import TextChunk, split_into_chunks
from sources.text.folding import is_grapheme_boundary
from tests.cases import each_case
from tests.tiers import examples

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


def chunk_texts(text: str, size_chars: int, overlap_chars: int = 0) -> list[str]:
    return [text[chunk.start : chunk.end] for chunk in split_into_chunks(text, size_chars, overlap_chars)]


def sentence_ends(text: str, expected: list[int]) -> list[int]:
    """Returns the end of the first chunk for sizes that fit all but the last character of each following sentence."""
    return [split_into_chunks(text, following - 1, 0)[0].end for following in [*expected[1:], len(text)]]


# -- properties of every result ---------------------------------------------------------------------------------------


@settings(max_examples=examples(500))
@given(TEXTS, st.integers(1, 80), st.integers(0, 60))
def test_chunks_cover_the_text_in_order_within_size_and_overlap(text: str, size: int, overlap: int) -> None:
    chunks = split_into_chunks(text, size, overlap)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [chunks[0].start, chunks[-1].end] == [0, len(text)] if text else not chunks
    for before, after in pairwise(chunks):
        assert before.start < after.start <= before.end < after.end
        assert before.end - after.start <= min(overlap, size // 2)
    for chunk in chunks:
        assert is_grapheme_boundary(text, chunk.start)
        is_one_grapheme = not any(is_grapheme_boundary(text, index) for index in range(chunk.start + 1, chunk.end))
        assert chunk.end - chunk.start <= size or is_one_grapheme


@given(TEXTS, st.integers(1, 80), st.integers(0, 60))
def test_chunking_is_deterministic(text: str, size: int, overlap: int) -> None:
    assert split_into_chunks(text, size, overlap) == split_into_chunks(text, size, overlap)


@pytest.mark.slow("generates long texts")
@each_case(
    "text",
    [
        "a" * 200_000,
        "." * 200_000,
        "\n" * 200_000,
        "e" + "\u0301" * 200_000,
        "🇩" * 200_000,
        "👨‍👩‍👧‍👦" * 20_000,
        "# a\n" * 40_000,
        '."' * 100_000,
        "\n- " * 60_000,
        "a\n===\n" * 20_000,
        "The cat sat on the mat. " * 20_000,
        "今天天气很好。" * 30_000,
    ],
)
def test_any_text_of_any_length_is_chunked(text: str) -> None:
    chunks = split_into_chunks(text, 1_000, 200)
    assert (chunks[0].start, chunks[-1].end) == (0, len(text))
    assert max(chunk.end - chunk.start for chunk in chunks) <= 1_000


def test_out_of_range_size_and_overlap_are_clamped() -> None:
    assert split_into_chunks("abc", 0, -5) == [TextChunk(0, 0, 1), TextChunk(1, 1, 2), TextChunk(2, 2, 3)]
    assert split_into_chunks("", 100, 10) == []


# -- sentences ---------------------------------------------------------------------------------------------------------


@each_case(
    "text",
    [
        "One comes here. |Two comes here! |Is it three? |It is...",
        "Dr. Smith and Mrs. Jones left the U.S. in Jan. 2020 with J. R. Tolkien, e.g. by ship. |They came back.",
        "See Fig. 3 and No. 5 on p. 7 for it. |No. |He left.",
        'He said "Stop!" |She (who knew.) |Nobody else did.',
        "Version 3.14 is out at example.com today. |Get it.",
        "It was... odd. |Then it was not at all.",
        'What?! he asked. |"Stop!" they cried.',
        "今日は晴れです。|「本当ですか？」|はい、そうです！|では行きましょう。",
        "कल बारिश हुई। |आज धूप है।",
        "هل أنت هنا؟ |نعم أنا هنا الآن.",
        "A line that\nwraps is one. \n|Next",
        "A paragraph without end\n\n|Another one\n\n|- first item\n|- second item\n|12. twelfth item",
        "Er kam z. B. am 3. März bzw. später. |Sie blieb.",
    ],
)
def test_sentences_end_where_expected(text: str) -> None:
    ends = list(accumulate(map(len, text.split("|")[:-1])))
    assert sentence_ends(text.replace("|", ""), ends) == ends


def test_chunk_holds_as_many_sentences_as_fit() -> None:
    assert chunk_texts("One. Two. Three. Four. Five.", 16) == ["One. Two. ", "Three. Four. ", "Five."]


def test_chunk_starts_with_the_last_sentences_of_the_previous_one() -> None:
    assert chunk_texts("One is. Two is. Three is. Four is.", 20, 10) == [
        "One is. Two is. ",
        "Two is. Three is. ",
        "Three is. Four is.",
    ]


def test_overlap_is_the_last_words_of_a_sentence_too_long_to_repeat() -> None:
    first, second = chunk_texts("This sentence is rather long. And this one follows.", 40, 15)
    assert (first, second) == ("This sentence is rather long. ", "rather long. And this one follows.")


def test_sentence_longer_than_a_chunk_is_split_between_words() -> None:
    assert chunk_texts("alpha beta gamma delta epsilon", 12) == ["alpha beta ", "gamma delta ", "epsilon"]


def test_text_without_spaces_is_split_between_graphemes() -> None:
    assert chunk_texts("👩‍💻👩‍💻👩‍💻", 7) == ["👩‍💻👩‍💻", "👩‍💻"]
    assert chunk_texts("東京都庁の歴史", 4) == ["東京都庁", "の歴史"]
    assert chunk_texts("東京都庁の歴史", 4, 2) == ["東京都庁", "庁の歴史"]


# -- headings ----------------------------------------------------------------------------------------------------------


def test_heading_starts_a_chunk_and_stays_with_its_text() -> None:
    text = "Intro here.\n\n# First\n\nOne. Two.\n## Second\nThree.\nUnder\n=====\nFour."
    assert chunk_texts(text, 100, 20) == [
        "Intro here.\n\n",
        "# First\n\nOne. Two.\n",
        "## Second\nThree.\n",
        "Under\n=====\nFour.",
    ]


def test_consecutive_headings_stay_together() -> None:
    assert chunk_texts("# Book\n\n## Chapter\nText.\n", 100) == ["# Book\n\n## Chapter\nText.\n"]


def test_heading_before_a_long_sentence_is_not_left_alone() -> None:
    first, *_ = chunk_texts("# Title\nThis first sentence is quite long for it.\n", 30)
    assert first == "# Title\nThis first sentence "


def test_comment_in_a_code_block_is_not_a_heading() -> None:
    text = "Before.\n```sh\n# a comment\nls\n```\nAfter.\n"
    assert chunk_texts(text, 100) == [text]


def test_hash_inside_a_line_is_not_a_heading() -> None:
    assert chunk_texts("Issue #5 and #tag\n#nospace\n", 100) == ["Issue #5 and #tag\n#nospace\n"]
