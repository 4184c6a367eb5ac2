"""What a search of all sources answers: the shapes of one source's search, with what only the whole can say."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from sources.items import ResultItem, SearchResponse

Status = Literal["ok", "timeout", "error", "skipped"]


class SourceReport(Struct, frozen=True, kw_only=True):
    """How one source fared in one search."""

    status: Status
    ms: int
    error: str | UnsetType = UNSET
    read_as: str | UnsetType = UNSET


class HitExplanation(Struct, frozen=True, kw_only=True):
    """Why a hit stands where it does. `terms` are the words matched in its snippet; `position` counts all hits,
    `rank_in_source` those of its source, both from 0; `bm25` is the engine's own rank, lower being better, which means
    nothing beside another source's."""

    position: int
    rank_in_source: int
    bm25: float | None
    terms: tuple[str, ...]
    seen_before: bool


class Explanation(Struct, frozen=True, kw_only=True):
    """What made the order. `rows_with_term` is how many of the library's `rows` hold each word: a rare one says more,
    so it counts more. A source of some size weighs words by its own rows, where they are as rare. `fusion` is how the
    sources became one list, `ties` what decides between equals. `topic` are the words of the session's earlier queries;
    of passages that are otherwise alike a snippet shows the one with them."""

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


class KnowledgeAnswer(SearchResponse, frozen=True, kw_only=True):
    results: tuple[KnowledgeItem, ...]
    session: Annotated[str, Meta(description="Pass as session, and no hit comes twice.")]
    sources: Annotated[Mapping[str, SourceReport], Meta(description="How each source fared.")]
    suppressed: Annotated[int, Meta(description="Hits left out as this session has seen them.")] = 0
    exhausted: Annotated[bool, Meta(description="All that was found was seen before; the best comes again.")] = False
    cut: Annotated[bool, Meta(description="The page ended early to stay small; next_offset goes on.")] = False
    explain: Explanation | UnsetType = UNSET
