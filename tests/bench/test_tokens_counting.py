"""The tokenizer of the benches is the real one: counts that OpenAI's own tokenizer gives for the same texts."""

import pytest

from bench.tokens_counting import count_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("hello world", 2), ("Donaudampfschifffahrt", 8), ("知識の花束", 5), ("<|endoftext|>", 7)],
)
def test_tokens_are_counted_as_openai_counts_them(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens
