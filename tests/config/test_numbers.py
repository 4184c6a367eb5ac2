"""Clamping a number to a range."""

from config.numbers import clamp
from tests.cases import each_case


@each_case(("value", "expected"), [(0, 1), (1, 1), (7, 7), (10, 10), (11, 10)])
def test_value_outside_the_bounds_becomes_the_nearest_bound(value: int, expected: int) -> None:
    assert clamp(value, 1, 10) == expected


def test_low_wins_if_the_bounds_cross() -> None:
    assert clamp(5, 1, 0) == 1
