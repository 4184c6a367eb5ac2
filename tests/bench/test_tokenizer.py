"""The tokenizer of the benchmarks gives the same counts as OpenAI's own."""

import pytest

from bench.tokenizer import count_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("hello world", 2), ("Donaudampfschifffahrt", 8), ("知識の花束", 5), ("<|endoftext|>", 7)],
)
def test_token_counts_match_openais_tokenizer(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens
