"""Decides how well a model knows the language of a text, by what its tokenizer makes of the words.

A tokenizer has the frequent words of the texts that the model was trained on, and splits others into pieces. If it
splits nearly all words of a text, the model has hardly seen the language. The vector of such a text depends on its
letters more than on its meaning.

A word is what spaces and punctuation marks separate. In scripts without spaces that is a whole clause, of which every
letter is a piece: no model here knows such a script. Numbers, punctuation marks and emoji belong to no language and do
not count.

Pieces per word of XQuAD's passages, median: with `minilm`, English 1.1, Vietnamese 1.7, Spanish 1.8, Romanian 2.0,
German 2.2, Hindi 2.6, Turkish 2.9, Arabic 4.7, Greek 5.1, Russian 5.9; with `fast`, English 1.2, Spanish 1.6, German
1.8, Romanian 2.0, Russian 2.3, Vietnamese 2.7, Hindi 3.0, Turkish 3.2, Arabic 4.5, Greek 5.4.
"""

import re
from collections.abc import Mapping, Sequence
from unicodedata import category

import numpy

from sources.text.folding import fold

# From here on, a query is compared by its words only. Below, the trust in its vector falls evenly: between one language
# that the model knows and another that it does not, there is no step either.
_QUERY_PIECES_MAX = 2.5
# Above it, a passage has no vector. This limit is higher: a passage without a vector loses against others of the
# same language that have one: where the limit divides the passages of a language, its queries must have no vector.
_PASSAGE_PIECES_MAX = 4.0
# One rare word, such as "vaccinations", says little about the language of a query. A query is judged as if it had two
# words more, of one piece each.
_PRIOR_WORDS = 2
# `fast` has no letters of most scripts. It reads the bytes of such a letter instead.
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPECIAL = re.compile(r"<.*>|\[.*\]")
# The first bytes of symbols such as "→", and of emoji, in UTF-8. The bytes that follow them count 1 each.
_SYMBOL_BYTE, _EMOJI_BYTE, _FIRST_LETTER_BYTE = 0xE2, 0xF0, 0x80


class WordPieces:
    """`vocabulary` are the tokens of a tokenizer and their numbers, `familiar` the pieces per word of the language that
    the model was made for."""

    def __init__(self, vocabulary: Mapping[str, int], familiar: float) -> None:
        self._familiar = familiar
        self._counts = numpy.zeros(max(vocabulary.values()) + 1, numpy.int32)
        for token, number in vocabulary.items():
            self._counts[number] = _count(token)

    def knows_passage(self, text: str, tokens: Sequence[int], unknown_letters: int = 0) -> bool:
        """Whether a passage with these tokens gets a vector. `unknown_letters` are those that the tokenizer has no
        token for: each is as good as a piece."""
        return self._count_pieces(tokens, unknown_letters) <= _PASSAGE_PIECES_MAX * max(1, _count_words(text))

    def trust_in_query(self, text: str, tokens: Sequence[int], unknown_letters: int = 0) -> float:
        """Returns the share of its cosines that a query with these tokens keeps: 1 in a language that the model knows,
        0 in one that it does not."""
        pieces = self._count_pieces(tokens, unknown_letters) + _PRIOR_WORDS
        excess = pieces / (_count_words(text) + _PRIOR_WORDS) - self._familiar
        return min(1.0, max(0.0, 1 - excess / (_QUERY_PIECES_MAX - self._familiar)))

    def _count_pieces(self, tokens: Sequence[int], unknown_letters: int) -> int:
        return int(self._counts[tokens].sum()) + unknown_letters


def count_letters(text: str) -> int:
    """Counts vowel signs, too: in Hindi and its relatives, a third of what is written."""
    return sum(category(character)[0] in "LM" for character in text)


def _count_words(text: str) -> int:
    words = fold(text).split()
    return len(words) - sum(map(str.isdecimal, words))


def _count(token: str) -> int:
    """Returns how many pieces of words a token is. The bytes of a symbol or an emoji have the sum 0."""
    if byte := _BYTE.fullmatch(token):
        value = int(byte[1], 16)
        if value >= _EMOJI_BYTE:
            return -3
        return -2 if value == _SYMBOL_BYTE else int(value >= _FIRST_LETTER_BYTE)
    return int(not _SPECIAL.fullmatch(token) and any(map(str.isalpha, token)))
