"""Tests of the folding fast paths against the folding table."""

from unicodedata import is_normalized, normalize

import pytest
from hypothesis import given

from sources.text.folding import (
    FOLDING,
    INDEX_FOLDING,
    compose,
    composition_form,
    fold,
    fold_by_table,
    fold_bytewise,
    fold_to_lower_case,
    folds_bytewise,
    folds_singly,
    folds_to_lower_case,
    folds_to_single_characters,
    is_vietnamese,
)
from tests.sources.text.samples import MIXED_TEXTS


@given(MIXED_TEXTS)
def test_bytewise_folding_equals_the_folding_table(text: str) -> None:
    if folds_bytewise(text):
        assert fold_bytewise(text) == text.translate(FOLDING)
        assert len(fold_bytewise(text)) == len(text)


@pytest.mark.slow("tries every character")
def test_every_character_classified_as_simple_folds_as_claimed() -> None:
    everything = [chr(code) for code in (*range(0x20000), *range(0xE0000, 0xE0200))]
    fold_of = {character: character.translate(FOLDING) for character in everything}
    assert [c for c in everything if folds_to_single_characters(c) and len(fold_of[c]) != 1] == []
    lower_case = [c for c in everything if folds_to_lower_case(c)]
    assert [c for c in lower_case if fold_to_lower_case(c) != c.translate(INDEX_FOLDING)] == []
    assert [c for c in lower_case if not is_normalized("NFC", c)] == []
    bytewise = [c for c in everything if folds_bytewise(c)]
    assert [c for c in bytewise if fold_of[c] != fold_bytewise(c)] == []


@given(MIXED_TEXTS)
def test_folding_a_long_text_equals_translating_it(text: str) -> None:
    for table in (FOLDING, INDEX_FOLDING):
        assert fold_by_table(text * 100, table) == (text * 100).translate(table)


def test_every_fold_is_its_own_fold() -> None:
    for code in (*range(0x20000), *range(0xE0000, 0xE0200)):
        folded = INDEX_FOLDING.fold(chr(code))
        assert folded.translate(INDEX_FOLDING) == folded, hex(code)


def test_folding_table_is_bounded() -> None:
    fold("".join(map(chr, range(0x10000))))
    assert len(FOLDING) <= FOLDING.limit < 0x10000


@pytest.mark.parametrize(
    "sentence",
    [
        "\u0939\u093f\u0902\u0926\u0940 \u0915\u093c\u0932\u092e \u092a\u0922\u093c\u0947 \u0928\u093c \u095b ",
        "\u0627\u0644\u0643\u0650\u062a\u0651\u0627\u0628\u0651\u064e \u0627\u0653\u0646 \u0627\u064f\u0651 ",
        "\u0e19\u0e49\u0e33\u0e15\u0e32\u0e25\u2026 \u0e17\u0e33 \u00bd  \u0e49\u0e32\u00a0\u0e01\u0e33 ",
        " \u0301e\u0301 \u05d0\u05b7\u05bc \u0308 ",
    ],
)
def test_long_texts_are_composed_as_a_whole_would_be(sentence: str) -> None:
    text = sentence * 20

    assert compose(text) == normalize(composition_form(text), text)


def test_long_texts_are_recognised_by_the_same_letters_as_short_ones() -> None:
    """Long texts are first searched for the blocks of the letters."""
    spaces = " " * 200
    for letter in map(chr, range(0x20000)):
        assert is_vietnamese(letter + spaces) == is_vietnamese(letter), hex(ord(letter))
        assert composition_form(letter + spaces) == composition_form(letter), hex(ord(letter))


def test_long_text_folds_singly_if_each_of_its_characters_folds_to_one() -> None:
    text = "Μία πρόταση, 15 λέξεις — và «слово»। " * 5
    assert folds_singly(text)
    assert [one for one in "\u200b\u00ad\u0640æ½ßﷺ\u0301\U0001f600" if folds_singly(f"{text}{one}{text}")] == []
