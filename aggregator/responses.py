"""The response of a search of all sources: that of a single source, extended."""

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from sources.items import Loc, ResultItem, SearchResponse
from sources.records import SemanticStatus

Status = Literal["ok", "timeout", "error", "skipped"]
_SCORE_DIGITS = 3


class SourceReport(Struct, frozen=True, kw_only=True):
    """The outcome of one source in one search. `total` is its number of hits, if it is known and the search is to be
    explained."""

    status: Status
    ms: int
    error: str | UnsetType = UNSET
    read_as: str | UnsetType = UNSET
    total: int | UnsetType = UNSET


class HitExplanation(Struct, frozen=True, kw_only=True):
    """Why a hit is at its position. `position` counts all hits and `rank_in_source` those of its source, both from 0.
    `terms` are the words matched in the snippet. `bm25` is the engine's own rank, lower is better; it is not comparable
    across sources. `time_boost` is the factor for what was created in a time that the query names, and `sender_boost`
    that for a message of someone whom it names. If meanings were compared, the score is
    `(1 - w) * lexical + w * semantic` with the `semantic_weight` w."""

    position: int
    rank_in_source: int
    bm25: float | None
    terms: tuple[str, ...]
    seen_before: bool
    time_boost: float | UnsetType = UNSET
    sender_boost: float | UnsetType = UNSET
    lexical: float | UnsetType = UNSET
    semantic: float | UnsetType = UNSET


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
    semantic_weight: float | None = None


# The status that a search of several sources reports is the first of these that one of them has.
_STATUSES = ("unavailable", "partial", "on", "not_applicable", "off")


def combined_status(statuses: Collection[SemanticStatus]) -> SemanticStatus | UnsetType:
    """The status of a search of several sources; its coverage is that of the source with the least."""
    if not statuses:
        return UNSET
    status = min(statuses, key=lambda one: (_STATUSES.index(one.status), one.coverage or 0.0))
    return replace(status, coverage=None) if status.status == "unavailable" else status


class KnowledgeItem(ResultItem, frozen=True, kw_only=True):
    also_in: Annotated[tuple[str, ...], Meta(description="URIs with the same content.")] | UnsetType = UNSET
    explain: HitExplanation | UnsetType = UNSET


class KnowledgeResponse(SearchResponse, frozen=True, kw_only=True, omit_defaults=True):
    results: tuple[KnowledgeItem, ...]
    not_reranked: Annotated[str, Meta(description="Why the reranker failed.")] | UnsetType = UNSET
    score_type: Annotated[str, Meta(description="The score_type of all results.")] | UnsetType = UNSET
    session: Annotated[str, Meta(description="Pass as session to avoid repeated hits.")]
    session_error: Annotated[str, Meta(description="Why seen hits are not skipped.")] | UnsetType = UNSET
    sources: Annotated[Mapping[str, SourceReport], Meta(description="Status of each source.")]
    suppressed: Annotated[int, Meta(description="Hits omitted because this session has seen them.")]
    exhausted: Annotated[bool, Meta(description="All hits were seen before; the best are repeated.")]
    cut: Annotated[bool, Meta(description="Some hits did not fit; continue at next_offset.")] = False
    explain: Explanation | UnsetType = UNSET


def without_repetition(response: KnowledgeResponse) -> KnowledgeResponse:
    """The response as clients get it: no result repeats what the response, its URI or another of its fields says. A
    program that needs such a field uses a source's own search."""
    results = [item_without_repetition(item, response.score_type) for item in response.results]
    return replace(response, results=tuple(results))


def item_without_repetition(item: KnowledgeItem, score_type: str | UnsetType) -> KnowledgeItem:
    return replace(
        item,
        score=round(item.score, _SCORE_DIGITS),
        score_type=UNSET if item.score_type == score_type else item.score_type,
        created_at=UNSET if item.created_at == item.last_modified else item.created_at,
        version=UNSET if item.version == 1 else item.version,
        conversation_id=None if item.conversation_id == item.id else item.conversation_id,
        message_id=None if _is_last_segment(item.message_id, item.uri) else item.message_id,
        loc=_loc_without_repetition(item.loc, item),
    )


def _loc_without_repetition(loc: Loc | None, item: KnowledgeItem) -> Loc | None:
    """One way to name the position. `conversation_id` stays, because clients of tldw rely on it."""
    if loc is None:
        return None
    has_index = loc.message_index is not None
    loc = replace(
        loc,
        media_id=None if loc.media_id == item.id else loc.media_id,
        message_id=None if has_index and _is_last_segment(loc.message_id, item.uri) else loc.message_id,
        chunk_uuid=loc.chunk_uuid if loc.chunk_index is None else None,
        start_ms=loc.start_ms if loc.seconds is None else None,
    )
    return loc if loc != Loc() else None


def _is_last_segment(identifier: str | None, uri: str) -> bool:
    return identifier is not None and uri.endswith(f"/{identifier}")
