"""Tests of token estimates: rather too high than too low, and never far from the real count."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.tokenizer import count_tokens
from sources.text.token_estimates import TokenScale, json_text
from tests.cases import each_case
from tests.sources.multilingual import SCRIPTS

SCALE = TokenScale()


@each_case("script", SCRIPTS)
def test_estimate_is_at_least_the_real_count_and_at_most_two_and_a_half_times_that(script: str) -> None:
    text = SCRIPTS[script] * 10
    actual = count_tokens(json_text(text)[1:-1])

    assert actual <= SCALE.estimate_tokens(text) <= 2.5 * actual


@given(st.text(max_size=300), st.floats(1, 8))
def test_characters_per_token_set_by_the_caller_are_used_exactly(text: str, per_token: float) -> None:
    assert TokenScale(per_token).estimate_tokens(text) == math.ceil(len(text) / per_token)


@each_case("scale", [SCALE, TokenScale(4.0)])
def test_a_stored_weight_gives_the_same_tokens_as_the_text(scale: TokenScale) -> None:
    for text in SCRIPTS.values():
        assert scale.tokens_of(SCALE.weigh(text * 90), len(text * 90)) == scale.estimate_tokens(text * 90)


@given(st.text(max_size=200), st.text(max_size=200))
def test_longer_text_never_weighs_less(text: str, more: str) -> None:
    assert SCALE.weigh(text) <= SCALE.weigh(text + more)


@given(st.text(max_size=9000) | st.sampled_from(sorted(SCRIPTS.values())).map(lambda text: text * 90), st.data())
def test_count_fitting_returns_as_much_as_the_room_allows(text: str, data: st.DataObject) -> None:
    room = data.draw(st.integers(0, SCALE.weigh(text) + 10))

    fits = SCALE.count_fitting(text, room)

    # An encoded run that is split between two steps may weigh a little less in parts.
    assert SCALE.weigh(text[:fits]) <= room + 17 * 32
    assert fits == len(text) or SCALE.weigh(text[: fits + 1]) > room


@given(st.text(max_size=500), st.integers(0, 20_000), st.integers(0, 500))
def test_count_fitting_before_counts_back_from_the_end(text: str, room: int, end: int) -> None:
    end = min(end, len(text))

    fits = SCALE.count_fitting_before(text, room, end)

    assert 0 <= fits <= end
    assert SCALE.weigh(text[end - fits : end]) <= room


@given(st.text(max_size=300))
def test_max_chars_is_an_upper_bound(text: str) -> None:
    assert len(text) <= SCALE.max_chars(SCALE.weigh(text))


def test_unmeasured_script_counts_one_token_per_byte() -> None:
    assert SCALE.estimate_tokens("ᠮᠣᠩᠭᠣᠯ") == len("ᠮᠣᠩᠭᠣᠯ".encode())


@pytest.mark.parametrize("text", ["กขค abc 123", "новость, X-86", "東京 (Tokyo)", "خبر \u2013 news"])
def test_a_letter_of_latin_1_does_not_change_the_weight_of_the_others(text: str) -> None:
    assert SCALE.weigh(f"{text}é") == SCALE.weigh(text) + SCALE.weigh("é")
