"""Tests of the folding fast paths against the folding table."""

from unicodedata import is_normalized

import pytest
from hypothesis import given

from sources.text.folding import (
    FOLDING,
    INDEX_FOLDING,
    fold,
    fold_by_table,
    fold_bytewise,
    fold_to_lower_case,
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
