"""Arithmetic shared by all packages."""

from typing import TypeVar

N = TypeVar("N", int, float)


def clamp(value: N, low: N, high: N) -> N:
    """Returns the value, or the nearest bound if it is outside `low..high`. If the bounds cross, `low` wins."""
    return max(low, min(value, high))
