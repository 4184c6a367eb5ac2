"""The response of a search of all sources: that of a single source, extended."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from sources.items import ResultItem, SearchResponse

Status = Literal["ok", "timeout", "error", "skipped"]


class SourceReport(Struct, frozen=True, kw_only=True):
    """The outcome of one source in one search."""

    status: Status
    ms: int
    error: str | UnsetType = UNSET
    read_as: str | UnsetType = UNSET


class HitExplanation(Struct, frozen=True, kw_only=True):
    """Why a hit is at its position. `position` counts all hits and `rank_in_source` those of its source, both from 0.
    `terms` are the words matched in the snippet. `bm25` is the engine's own rank, lower is better; it is not comparable
    across sources."""

    position: int
    rank_in_source: int
    bm25: float | None
    terms: tuple[str, ...]
    seen_before: bool


class Explanation(Struct, frozen=True, kw_only=True):
    """How the order was determined.

    `rows_with_term` is how many of the library's `rows` contain each word; rare words weigh more. A large source uses
    its own rows instead. `fusion` names how the lists of the sources were merged, and `ties` what decides between equal
    scores. `topic` lists words of the session's earlier queries, which decide between equally good snippets of a hit.
    """

    order_by: str
    fusion: str
    ties: str
    topic: tuple[str, ...]
    scoring: str
    rows: int | None
    rows_with_term: Mapping[str, int] | None
    hits_per_source: int


class KnowledgeItem(ResultItem, frozen=True, kw_only=True):
    also_in: Annotated[tuple[str, ...], Meta(description="URIs with the same content.")] | UnsetType = UNSET
    explain: HitExplanation | UnsetType = UNSET


class KnowledgeResponse(SearchResponse, frozen=True, kw_only=True):
    results: tuple[KnowledgeItem, ...]
    session: Annotated[str, Meta(description="Pass as session to avoid repeated hits.")]
    sources: Annotated[Mapping[str, SourceReport], Meta(description="Status of each source.")]
    suppressed: Annotated[int, Meta(description="Hits omitted because this session has seen them.")] = 0
    exhausted: Annotated[bool, Meta(description="All hits were seen before; the best are repeated.")] = False
    cut: Annotated[bool, Meta(description="The page was shortened; continue at next_offset.")] = False
    explain: Explanation | UnsetType = UNSET
