"""Literal comparison of texts: as they are written, except for case, white space and the composition of letters."""

import re
from functools import lru_cache
from unicodedata import normalize

from sources.text.segmentation import UNSPACED_RUN

# A letter or digit. As in the index, an underscore separates words.
_WORD_CHARACTER = r"[^\W_]"


def literal_form(text: str) -> str:
    """Returns a text without the differences that a literal comparison ignores."""
    return " ".join(normalize("NFC", text).casefold().split())


def contains_literal(text: str, literal: str) -> bool:
    """Returns whether a text contains another one, given in its literal form, as whole words. In scripts without
    spaces, it may be part of a longer run."""
    return _pattern(literal).search(literal_form(text)) is not None


@lru_cache(maxsize=64)
def _pattern(literal: str) -> re.Pattern[str]:
    start = f"(?<!{_WORD_CHARACTER})" if _is_of_spaced_word(literal[:1]) else ""
    end = f"(?!{_WORD_CHARACTER})" if _is_of_spaced_word(literal[-1:]) else ""
    return re.compile(f"{start}{re.escape(literal)}{end}")


def _is_of_spaced_word(character: str) -> bool:
    return character.isalnum() and not UNSPACED_RUN.match(character)
