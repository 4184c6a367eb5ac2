"""The embedding model: what every model offers, and how its vectors are encoded.

A vector is `bytes`: one signed byte per dimension, `round(127 * x)` of the vector scaled to length 1. The cosine of two
vectors is their dot product divided by 127². A blank text, and one in a language that the model does not know, has a
vector of zeros, which resembles nothing. That of a query is shorter if the model knows its language only partly.
"""

import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

# Passages are shorter. Tokenizing takes time for all of a text, even if the model reads only its beginning.
TEXT_MAX_CHARS = 8_000
SCALE = 127
# What a product of two vectors is divided by, for their cosine.
PRODUCT_SCALE = SCALE * SCALE
# Texts that have nothing to do with each other have cosines around 0. Of such hits, every query would have some.
LEAST_COSINE = 0.15
_SHORT_QUERY_TERMS = 4
_TEXTS_MIN = 100


class SemanticUnavailable(Exception):
    """Nothing can be embedded now. `reason` is a sentence for the caller of a search."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ModelInfo(Struct, frozen=True):
    """What is known of a model without loading it. `id` is stored with its vectors.

    `has_context`: whether the passage of a message starts with the end of what was said before it. `weight`: the share
    of the cosine in the score of a short query. `noise_mean` and `noise_deviation`: mean and standard deviation of the
    cosines of queries with texts that have nothing to do with them, if they were measured.
    """

    name: str
    id: str
    dimension: int
    has_context: bool
    weight: float
    noise_mean: float | None = None
    noise_deviation: float = 0.0

    def weight_for(self, terms: int) -> float:
        """Returns the share of the cosine in the scores of a query with so many terms.

        It falls with the square root of their number. The share of the terms that a text contains is an estimate, whose
        error falls in the same way: of two words, the wrong synonym loses half of the score, of twelve hardly any.
        """
        return self.weight * min(1.0, math.sqrt(_SHORT_QUERY_TERMS / max(1, terms)))

    def floor_for(self, texts: int) -> float:
        """Returns the cosine below which the nearest of this number of texts may be near by chance.

        The largest of n normally distributed numbers exceeds their mean by more than sqrt(2 ln n) standard deviations
        in about one of ten cases. A small source counts as if it had a hundred texts, because it is mostly searched
        together with others: with each of them, there is one chance more.
        """
        if self.noise_mean is None:
            return LEAST_COSINE
        chance = self.noise_mean + self.noise_deviation * math.sqrt(2 * math.log(max(_TEXTS_MIN, texts)))
        return max(LEAST_COSINE, chance)


class EmbeddingModel(Protocol):
    """A model in this process. Calls block, and may come from one thread at a time."""

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Returns a vector for each passage. A text has the same vector whichever texts are embedded with it."""
        ...

    def count_tokens(self, word: str) -> int: ...

    def embed_query(self, text: str) -> bytes:
        """Returns the vector of a query. If the model knows its language only partly, the vector is shorter: all of its
        cosines are smaller, and words decide."""
        ...


def clean_text(text: str) -> str:
    """Returns the part of a text that is embedded, without lone surrogates, which tokenizers and JSON reject."""
    return text[:TEXT_MAX_CHARS].strip().encode("utf-8", "replace").decode()


# All sources of a search need the same.
@lru_cache(maxsize=64)
def vector_length(vector: bytes) -> float:
    """Returns the length of a vector: 1, or less for a query in a language that the model knows only partly."""
    return math.hypot(*array("b", vector)) / SCALE
