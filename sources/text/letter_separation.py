"""Separates the letters of scripts that are written without spaces, for tokenizers that know only words."""

from sources.text.segmentation import UNSPACED_RUN, may_have_unspaced_letters

# A zero-width space: it is part of no word, and invisible.
SEPARATOR = "\u200b"


def separate_letters(text: str) -> str:
    """Puts a separator before and after every letter of a script without spaces. A tokenizer then takes each letter for
    a word, and a word of several letters for a phrase, which is found inside running text."""
    if text.isascii() or not may_have_unspaced_letters(text):
        return text
    return UNSPACED_RUN.sub(lambda run: f"{SEPARATOR}{SEPARATOR.join(run[0])}{SEPARATOR}", text)
