"""Counts tokens with a real tokenizer: o200k_base, used by OpenAI's current models.

Its tables are part of the wheel, so nothing is downloaded.
"""

from functools import cache

from splintr import AnyTokenizer, Tokenizer


def count_tokens(text: str) -> int:
    """Counts text that looks like a control token as plain text, since a library can contain any text."""
    return len(_tokenizer().encode_ordinary(text))


@cache
def _tokenizer() -> AnyTokenizer:
    return Tokenizer.from_pretrained("o200k_base")
