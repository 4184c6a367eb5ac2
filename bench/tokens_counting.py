"""How many tokens a model pays for a text, by a real tokenizer (o200k_base, the one of OpenAI's current models) whose
tables come inside its wheel: nothing is downloaded, and nothing is estimated."""

from functools import cache

from splintr import AnyTokenizer, Tokenizer


def count_tokens(text: str) -> int:
    """Text that looks like a control token is counted as the text it is: a library may hold any."""
    return len(_tokenizer().encode_ordinary(text))


@cache
def _tokenizer() -> AnyTokenizer:
    return Tokenizer.from_pretrained("o200k_base")
