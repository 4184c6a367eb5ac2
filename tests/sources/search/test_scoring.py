"""Tests of scores: from 0 to 1, dependent only on hit and query, and equal to the measured values."""

from collections.abc import Sequence
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.search.scoring import (
    MESSAGE_AND_CONTEXT,
    TITLE_AND_BODY,
    Prominence,
    Scorer,
    TermStatistics,
    scale_to_range,
    term_weights,
    title_share,
)

RARE_AND_COMMON = term_weights(20_000, [TermStatistics(10), TermStatistics(1_000)])

COUNTS = st.integers(0, 10_000)
# Occurrences in the prominent part and in the rest, of which most are 0.
PARTS = st.tuples(st.integers(0, 2), st.integers(0, 3))
TERMS = st.lists(st.tuples(st.builds(TermStatistics, COUNTS, st.integers(1, 9)), COUNTS, COUNTS), max_size=8)


def score(
    weights: Sequence[float],
    *frequencies: tuple[int, int],
    length_chars: int = 600,
    title: float = 0.0,
    opening: float = 0.0,
    prominence: Prominence = TITLE_AND_BODY,
) -> float:
    """Scores a hit, given the occurrences of each term in its prominent part and in the rest."""
    scorer = Scorer(weights, prominence)
    counts = [{part: count for part, count in enumerate(parts) if count} for parts in frequencies]
    scores, _, _ = scorer.scores(counts, [length_chars], {0: title}, {0: opening})
    return scores[0]


def reference_score(
    weights: Sequence[float], text: Sequence[tuple[int, int]], length_chars: int, title: float, prominence: Prominence
) -> float:
    """The formula as documented, computed for one text and all terms."""
    if not weights:
        return 0.0
    damping = 1.2 * (1 - 0.75) + 1.2 * 0.75 / 600 * length_chars
    saturated = in_title = matched = 0.0
    for weight, (in_prominent, in_other) in zip(weights, text, strict=True):
        occurrences = prominence.weight * in_prominent + in_other
        if occurrences:
            saturated += weight * occurrences / (occurrences + damping)
            in_title += weight if in_prominent else 0.0
            matched += weight
    total = sum(weights)
    saturated *= sqrt(min(1.0, matched / total))
    return min(1.0, (saturated + 0.3 * in_title * title) / total / 1.3)


def test_weights_equal_the_measured_ones() -> None:
    rare, common = RARE_AND_COMMON
    assert (rare, common) == pytest.approx((7.5522, 2.9953), abs=5e-5)


def test_score_of_a_hit_with_a_title_equals_the_measured_one() -> None:
    result = score(RARE_AND_COMMON, (1, 2), (0, 1), length_chars=900, title=1 / 4)
    assert result == pytest.approx(0.5137, abs=5e-5)


def test_score_of_a_message_equals_the_measured_one() -> None:
    result = score(RARE_AND_COMMON, (1, 2), (0, 0), length_chars=120, prominence=MESSAGE_AND_CONTEXT)
    matched_share = 7.5522 / (7.5522 + 2.9953)
    assert result == pytest.approx(0.5025 * matched_share**0.5, abs=5e-5)


@given(st.integers(0, 10**9), TERMS, st.integers(0, 10**7), st.floats(0, 1))
def test_every_score_is_between_zero_and_one(
    rows: int, terms: list[tuple[TermStatistics, int, int]], length_chars: int, share: float
) -> None:
    weights = term_weights(rows, [statistics for statistics, *_ in terms])
    frequencies = [(prominent, other) for _, prominent, other in terms]
    assert all(weight > 0 for weight in weights)
    assert 0 <= score(weights, *frequencies, length_chars=length_chars, title=share) <= 1


@given(
    st.lists(st.floats(0.01, 20), max_size=5).flatmap(
        lambda weights: st.tuples(
            st.just(weights),
            st.lists(st.tuples(st.lists(PARTS, min_size=len(weights), max_size=len(weights)), st.integers(0, 9_000))),
        )
    ),
    st.sampled_from([TITLE_AND_BODY, MESSAGE_AND_CONTEXT]),
    st.sampled_from([0.0, 0.25, 1.0]),
)
def test_texts_scored_together_have_the_scores_of_each_alone(
    query: tuple[list[float], list[tuple[list[tuple[int, int]], int]]], prominence: Prominence, title: float
) -> None:
    weights, texts = query
    scorer = Scorer(weights, prominence)
    counts = [
        {
            part * len(texts) + number: text[term][part]
            for part in (0, 1)
            for number, (text, _) in enumerate(texts)
            if text[term][part]
        }
        for term in range(len(weights))
    ]

    lengths_chars = [length_chars for _, length_chars in texts]
    scores, in_title, terms = scorer.scores(counts, lengths_chars, dict.fromkeys(range(len(texts)), title), {})

    assert scores == [reference_score(weights, text, length_chars, title, prominence) for text, length_chars in texts]
    assert terms == [sum(1 << term for term, parts in enumerate(text) if any(parts)) for text, _ in texts]
    assert in_title == [
        sum(weight for weight, (in_prominent, _) in zip(weights, text, strict=True) if in_prominent)
        for text, _ in texts
    ]


def test_score_without_terms_is_zero() -> None:
    assert score(()) == 0


def test_hit_with_the_rare_word_scores_higher_than_one_with_the_common_word() -> None:
    assert score(RARE_AND_COMMON, (0, 1), (0, 0)) > score(RARE_AND_COMMON, (0, 0), (0, 5))


def test_hit_with_both_words_scores_higher_than_one_that_repeats_one_word() -> None:
    assert score(RARE_AND_COMMON, (0, 1), (0, 1)) > score(RARE_AND_COMMON, (0, 2), (0, 0))


def test_same_words_in_a_shorter_text_score_higher() -> None:
    short, long = (score(RARE_AND_COMMON, (0, 1), (0, 1), length_chars=chars) for chars in (200, 5_000))
    assert short > long


def test_unknown_word_in_the_query_lowers_every_score() -> None:
    known, unknown = TermStatistics(10), TermStatistics(0)
    alone = score(term_weights(1_000, [known]), (0, 3))
    with_unknown = score(term_weights(1_000, [known, unknown]), (0, 3), (0, 0))
    assert with_unknown < alone / 2


def test_weight_of_a_repeated_word_grows_with_the_square_root() -> None:
    once, four_times = term_weights(1_000, [TermStatistics(10), TermStatistics(10, count=4)])
    assert four_times == pytest.approx(2 * once)


def test_title_equal_to_the_query_adds_the_full_bonus() -> None:
    frequencies = ((1, 0), (1, 0))
    bare = score(RARE_AND_COMMON, *frequencies)
    titled = score(RARE_AND_COMMON, *frequencies, title=1.0)
    assert titled - bare == pytest.approx(0.3 / 1.3)
    # A title that begins like the query counts by what else of the query the text has.
    half = ((0, 1), (0, 0))
    opened = score([2.0, 2.0], *half, opening=1 / 3) - score([2.0, 2.0], *half)
    assert opened == pytest.approx(0.3 / 1.3 / 3 / 2)


def test_title_share_is_relative_to_the_words_of_the_title() -> None:
    assert title_share(frozenset({"rust", "guid"}), frozenset({"rust", "async"})) == 0.5
    assert title_share(frozenset(), frozenset({"rust"})) == 0


# -- scores within one result list -------------------------------------------------------------------------------------


def test_best_rank_of_a_list_is_scaled_to_one_and_the_worst_to_zero() -> None:
    assert scale_to_range([-9.0, -5.0, -1.0]) == pytest.approx([1.0, 0.5, 0.0])


def test_single_hit_and_equal_hits_are_scaled_to_one() -> None:
    assert scale_to_range([-3.2]) == [1.0]
    assert scale_to_range([-3.2, -3.2]) == [1.0, 1.0]
    assert scale_to_range([]) == []


@given(st.lists(st.floats(-1e6, 0, allow_subnormal=False), min_size=2, max_size=50))
def test_scaled_list_keeps_its_order_between_zero_and_one(ranks: list[float]) -> None:
    scaled = scale_to_range(ranks)
    assert all(0 <= value <= 1 for value in scaled)
    assert [value for _, value in sorted(zip(ranks, scaled, strict=True))] == sorted(scaled, reverse=True)
