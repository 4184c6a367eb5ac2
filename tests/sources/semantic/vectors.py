"""Vectors as tests compare them."""

from array import array

from sources.semantic.model import SCALE


def cosine(left: bytes, right: bytes) -> float:
    return sum(a * b for a, b in zip(array("b", left), array("b", right), strict=True)) / SCALE**2
