"""Tests of the folding fast paths against the folding table."""

from hypothesis import given

from sources.text.folding import (
    FOLDING,
    fold,
    fold_bytewise,
    folds_bytewise,
    folds_to_lower_case,
    folds_to_single_characters,
)
from tests.sources.text.samples import MIXED_TEXTS


@given(MIXED_TEXTS)
def test_bytewise_folding_equals_the_folding_table(text: str) -> None:
    if folds_bytewise(text):
        assert fold_bytewise(text) == text.translate(FOLDING)
        assert len(fold_bytewise(text)) == len(text)


def test_every_character_classified_as_simple_folds_as_claimed() -> None:
    everything = [chr(code) for code in (*range(0x20000), *range(0xE0000, 0xE0200))]
    fold_of = {character: character.translate(FOLDING) for character in everything}
    assert [c for c in everything if folds_to_single_characters(c) and len(fold_of[c]) != 1] == []
    lower_case = [c for c in everything if folds_to_lower_case(c)]
    assert [c for c in lower_case if fold_of[c] != (c.lower() if c.isalnum() else " ")] == []
    bytewise = [c for c in everything if folds_bytewise(c)]
    assert [c for c in bytewise if fold_of[c] != fold_bytewise(c)] == []


def test_folding_table_is_bounded() -> None:
    fold("".join(map(chr, range(0x10000))))
    assert len(FOLDING) <= FOLDING.limit < 0x10000
