"""The embedding model: what every model offers, and how its vectors are encoded.

A vector is `bytes`: one signed byte per dimension, `round(127 * x)` of the vector scaled to length 1. The cosine of two
vectors is their dot product divided by 127². A blank text, and one that the model does not know, has a vector of zeros,
which resembles nothing.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

# Passages are shorter. Tokenizing takes time for all of a text, even if the model reads only its beginning.
TEXT_MAX_CHARS = 8_000
SCALE = 127
_SHORT_QUERY_TERMS = 4


class SemanticUnavailable(Exception):
    """Nothing can be embedded now. `reason` is a sentence for the caller of a search."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ModelInfo(Struct, frozen=True):
    """What is known of a model without loading it. `id` is stored with its vectors.

    `has_context`: whether the passage of a message starts with the end of what was said before it. `weight`: the share
    of the cosine in the score of a short query.
    """

    name: str
    id: str
    dimension: int
    has_context: bool
    weight: float

    def weight_for(self, terms: int) -> float:
        """Returns the share of the cosine in the scores of a query with so many terms.

        It falls with the square root of their number. The share of the terms that a text contains is an estimate, whose
        error falls in the same way: of two words, the wrong synonym loses half of the score, of twelve hardly any.
        """
        return self.weight * min(1.0, math.sqrt(_SHORT_QUERY_TERMS / max(1, terms)))


class EmbeddingModel(Protocol):
    """A model in this process. Calls block, and may come from one thread at a time."""

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Returns a vector for each text. A text has the same vector whichever texts are embedded with it."""
        ...


def clean_text(text: str) -> str:
    """Returns the part of a text that is embedded, without lone surrogates, which tokenizers and JSON reject."""
    return text[:TEXT_MAX_CHARS].strip().encode("utf-8", "replace").decode()


def encode_rows(rows: Any) -> list[bytes]:
    """Encodes a numpy matrix with one vector per row."""
    import numpy  # noqa: PLC0415 - only installed with a model

    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    codes = numpy.rint(rows * (SCALE / lengths)).astype(numpy.int8)
    return [row.tobytes() for row in codes]
