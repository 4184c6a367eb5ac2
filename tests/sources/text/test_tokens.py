"""The estimate of tokens: sooner too high than too low, never far from the truth, and cheap."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.tokens_counting import count_tokens
from sources.text.tokens import Scale, json_text
from tests.sources.multilingual import SCRIPTS

OURS = Scale()


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_estimate_is_not_below_the_truth_and_not_far_above(script: str) -> None:
    text = SCRIPTS[script] * 10
    true = count_tokens(json_text(text)[1:-1])

    assert true <= OURS.estimate_tokens(text) <= 2.5 * true


@given(st.text(max_size=300), st.floats(1, 8))
def test_a_caller_that_says_how_many_characters_a_token_has_is_taken_at_its_word(text: str, per_token: float) -> None:
    assert Scale(per_token).estimate_tokens(text) == math.ceil(len(text) / per_token)


def test_the_rest_of_a_text_is_estimated_by_a_part_of_it() -> None:
    text = SCRIPTS["Japanese"] * 200

    assert OURS.estimate_tokens(text[:3000], len(text)) == pytest.approx(OURS.estimate_tokens(text), rel=0.05)
    assert Scale(4.0).estimate_tokens(text[:300], len(text)) == math.ceil(len(text) / 4)


def test_a_length_of_which_no_text_is_known_is_estimated_as_prose() -> None:
    prose = SCRIPTS["English"] * 50

    assert OURS.estimate_tokens("", len(prose)) == pytest.approx(OURS.estimate_tokens(prose), rel=0.2)


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_never_weighs_less(text: str, more: str) -> None:
    assert OURS.weigh(text) <= OURS.weigh(text + more)


@given(st.text(max_size=9000) | st.sampled_from(sorted(SCRIPTS.values())).map(lambda text: text * 90), st.data())
def test_what_fits_is_as_much_as_the_room_allows(text: str, data: st.DataObject) -> None:
    room = data.draw(st.integers(0, OURS.weigh(text) + 10))

    fits = OURS.fitting(text, room)

    # A run of letters that is divided between two steps may weigh a little less in parts.
    assert OURS.weigh(text[:fits]) <= room + 17 * 32
    assert fits == len(text) or OURS.weigh(text[: fits + 1]) > room


@given(st.text(max_size=500), st.integers(0, 20_000), st.integers(0, 500))
def test_what_fits_before_a_place_ends_there(text: str, room: int, end: int) -> None:
    end = min(end, len(text))

    fits = OURS.fitting_before(text, room, end)

    assert 0 <= fits <= end
    assert OURS.weigh(text[end - fits : end]) <= room


@given(st.text(max_size=300))
def test_no_text_of_a_weight_is_longer_than_is_said(text: str) -> None:
    assert len(text) <= OURS.most_chars(OURS.weigh(text))


def test_a_script_nobody_measured_takes_a_token_for_every_byte() -> None:
    assert OURS.estimate_tokens("ᠮᠣᠩᠭᠣᠯ") == len("ᠮᠣᠩᠭᠣᠯ".encode())
