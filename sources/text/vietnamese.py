"""Vietnamese words with their tone marks and accents.

Folding removes all marks, which in Vietnamese are what tells words apart: ma, má, mà, mả, mã and mạ are six words.
Texts that contain letters of Vietnamese only are therefore indexed with a second token for each word with marks,
spelled with digits as on Vietnamese keyboards (VNI): tiếng is tieng and tie61ng.
"""

import re
from unicodedata import normalize

# Letters of no other language that is written with Latin letters: ơ and ư, and vowels with two marks or a dot below.
_VIETNAMESE = re.compile("[\u01a0\u01a1\u01af\u01b0\u1ea0-\u1ef9]")
_WORD = re.compile(r"[^\W\d_]+")
_DIGITS = str.maketrans(
    {"\u0301": "1", "\u0300": "2", "\u0309": "3", "\u0303": "4", "\u0323": "5", "\u0302": "6", "\u031b": "7"}
    | {"\u0306": "8", "đ": "d9"}
)


def is_vietnamese(text: str) -> bool:
    """Returns whether a composed text contains letters that only Vietnamese has."""
    return not text.isascii() and _VIETNAMESE.search(text) is not None


def tone_spans(text: str) -> list[tuple[int, int]]:
    """Returns the start and end of each word with marks in a composed Vietnamese text."""
    if not is_vietnamese(text):
        return []
    return [match.span() for match in _WORD.finditer(text) if tone_token(match[0])]


def tone_token(word: str) -> str | None:
    """Returns the token of a word with its marks, or None if it has none, or other ones than Vietnamese has."""
    if word.isascii():
        return None
    token = normalize("NFD", word.lower()).translate(_DIGITS)
    return token if token.isascii() and token.isalnum() else None


def tone_tokens(text: str) -> list[str]:
    """Returns the tokens of the words with marks in a composed Vietnamese text."""
    return [token for start, end in tone_spans(text) if (token := tone_token(text[start:end]))]
