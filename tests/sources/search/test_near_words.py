"""Similar words are found in the text of a vocabulary as if each word was compared."""

from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from sources.storage.search.vocabulary import (
    compounds_with,
    roots_with_other_endings,
    similar_words,
    word_beginnings,
)

# Few letters, so that words are often near to each other.
_LETTERS = "abcд"
_words = st.text(_LETTERS, min_size=4, max_size=10)


@st.composite
def _word_with_neighbours(draw: st.DrawFn) -> tuple[str, set[str]]:
    word = draw(_words)
    neighbours = {draw(_edited(word)) for _ in range(draw(st.integers(0, 8)))}
    return word, {other for other in neighbours | draw(st.sets(_words)) if len(other) >= 4}


@st.composite
def _edited(draw: st.DrawFn, word: str) -> str:
    letters = list(word)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(letters)))
        match draw(st.sampled_from(("insert", "delete", "replace", "swap"))):
            case "insert":
                letters.insert(at, draw(st.sampled_from(_LETTERS)))
            case "delete":
                del letters[at : at + 1]
            case "replace":
                letters[at : at + 1] = draw(st.sampled_from(_LETTERS))
            case _:
                letters[at : at + 2] = reversed(letters[at : at + 2])
    return "".join(letters)


def _vocabulary(words: set[str]) -> str:
    return " ".join(["", *sorted(words), ""])


@given(_word_with_neighbours())
def test_all_words_within_the_distance_are_found(word_and_others: tuple[str, set[str]]) -> None:
    word, others = word_and_others
    vocabularies = [_vocabulary({other for other in others if other[0] == letter}) for letter in _LETTERS]

    for edits in (1, 2):
        expected = {other for other in others if OSA.distance(word, other) == edits}
        assert similar_words(word, edits, vocabularies) == expected


@given(_word_with_neighbours())
def test_words_with_one_wrong_letter_are_among_fewer_beginnings(word_and_others: tuple[str, set[str]]) -> None:
    word, others = word_and_others
    one, two = (word_beginnings(word, 10_000, edits) for edits in (1, 2))

    for other in others:
        if OSA.distance(word, other) == 1:
            assert other.startswith(one) == other.startswith(two)
    assert word_beginnings("harbour", 10_000, 1) == ("h", "ah", "aa", "ar")


@given(_word_with_neighbours())
def test_all_compounds_are_found(word_and_others: tuple[str, set[str]]) -> None:
    word, others = word_and_others
    compounds = {f"abc{word}", f"дabc{word}", f"abc{word}дcb"}
    # Too short a part is no word: inscription is no compound of script.
    others |= {f"ab{word}", f"ab{word}cbaд", f"abc{word}дc", f"{word}abc"}

    expected = sorted(compounds)
    unrelated = {other for other in others if word not in other[3:]}

    assert compounds_with(word, [_vocabulary(unrelated | compounds | {word})]) == expected


def test_words_with_digits_are_not_similar() -> None:
    assert similar_words("house", 1, [" h0use horse "]) == {"horse"}


def test_a_misspelled_ending_is_corrected_before_it_is_removed() -> None:
    assert "appoint" in roots_with_other_endings("appointmnet")
    assert "inscript" in roots_with_other_endings("inscriptoin")
    assert roots_with_other_endings("appointment") == ["appointem"] or "appoint" not in roots_with_other_endings(
        "zebra"
    )
