"""Limits on the size of a query."""

from msgspec import Struct


class QueryLimits(Struct, frozen=True):
    """How much of a query is used. Anything beyond is dropped, and `read_as` reports it."""

    max_chars: int = 1_000
    max_terms: int = 32
    max_nesting: int = 8
    max_prefixes: int = 4
    min_prefix_chars: int = 3
    max_phrase_tokens: int = 16
