"""The response of a search of all sources: that of a single source, extended."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from sources.items import Loc, ResultItem, SearchResponse
from sources.records import SemanticStatus

Status = Literal["ok", "timeout", "error", "skipped"]
_SCORE_DIGITS = 3
_MINUTE_CHARS = len("2026-01-10T09:15")
_TIME_CHARS = len("2026-01-10T09:15:33Z")


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
    `(1 - w) * lexical + w * semantic` with the `semantic_weight` w. `message_boosts` are the factors for the odds of
    that score, by what a message is."""

    position: int
    rank_in_source: int
    bm25: float | None
    terms: tuple[str, ...]
    seen_before: bool
    time_boost: float | UnsetType = UNSET
    sender_boost: float | UnsetType = UNSET
    message_boosts: Mapping[str, float] | UnsetType = UNSET
    lexical: float | UnsetType = UNSET
    semantic: float | UnsetType = UNSET


class Explanation(Struct, frozen=True, kw_only=True):
    """How the order was determined.

    `rows_with_term` is how many of the library's `rows` contain each word; rare words weigh more. A large source uses
    its own rows instead. `fusion` names how the lists of the sources were merged, and `ties` what decides between equal
    scores. `topic` lists words of the session's earlier queries, which decide between equally good snippets of a hit.
    `semantic_floors`: a source has hits by meaning alone only if the cosine of its nearest item reaches its floor.
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
    semantic_floors: Mapping[str, float] | UnsetType = UNSET


# The status that a search of several sources reports is the first of these that one of them has.
_STATUSES = ("unavailable", "partial", "on", "not_applicable", "off")


def combined_status(statuses: Collection[SemanticStatus]) -> SemanticStatus | UnsetType:
    """The status of a search of several sources; its coverage is that of the source with the least."""
    if not statuses:
        return UNSET
    status = min(statuses, key=lambda one: (_STATUSES.index(one.status), one.coverage or 0.0))
    return replace(status, coverage=None) if status.status == "unavailable" else status


class FurtherPassage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A further passage of a result's item. `loc` leads to it."""

    snippet: str
    loc: Loc | None = None
    sender: str | None = None
    created_at: str | UnsetType | None = UNSET


class KnowledgeItem(ResultItem, frozen=True, kw_only=True):
    """A result: an item with the passages of it that match best. Fields without a value are omitted, and so are those
    whose value another field has (`without_repetition`)."""

    id: str | int = ""
    title: str | None = None
    last_modified: str | None = None
    tags: tuple[str, ...] | None = None
    passages: (
        Annotated[tuple[FurtherPassage, ...], Meta(description="Further passages of this item, in its order.")]
        | UnsetType
    ) = UNSET
    also_in: Annotated[tuple[str, ...], Meta(description="URIs with the same content.")] | UnsetType = UNSET
    explain: HitExplanation | UnsetType = UNSET


class KnowledgeResponse(SearchResponse, frozen=True, kw_only=True, omit_defaults=True):
    results: tuple[KnowledgeItem, ...]
    next_offset: int | None = None
    total_estimated: Annotated[int | None, Meta(description="Exact, or omitted if not known.")] = None
    not_reranked: Annotated[str, Meta(description="Why the reranker failed.")] | UnsetType = UNSET
    score_type: Annotated[str, Meta(description="The score_type of all results.")] | UnsetType = UNSET
    session: Annotated[str, Meta(description="Pass as session to avoid repeated hits.")]
    session_error: Annotated[str, Meta(description="Why seen hits are not skipped.")] | UnsetType = UNSET
    sources: Annotated[Mapping[str, SourceReport], Meta(description="Sources that failed or read the query.")] = {}
    libraries: Annotated[
        Mapping[str, Mapping[str, SourceReport]], Meta(description="The same for the libraries of others, by name.")
    ] = {}
    suppressed: Annotated[int, Meta(description="Results omitted because this session has seen them.")] = 0
    exhausted: Annotated[bool, Meta(description="All results were seen before; the best are repeated.")] = False
    cut: Annotated[bool, Meta(description="Fewer results than the limit fitted; continue at next_offset.")] = False
    explain: Explanation | UnsetType = UNSET


def failed_reports(response: KnowledgeResponse) -> list[tuple[str, SourceReport]]:
    """The sources that were not searched, or failed, with the library of others that they are in."""
    named = list(response.sources.items())
    for library, reports in response.libraries.items():
        named += [(f"{name} of {library}", report) for name, report in reports.items()]
    return [(name, report) for name, report in named if report.status != "ok"]


def without_repetition(response: KnowledgeResponse) -> KnowledgeResponse:
    """The response as clients get it: it reports what is not as expected, and no result repeats what the response, its
    URI or another of its fields says. A program that needs such a field sets `hit_fields` to "all" in its config, or
    uses a source's own search."""
    results = [item_without_repetition(item) for item in response.results]
    reports, libraries = response.sources, response.libraries
    if response.explain is UNSET:
        reports = _unexpected(reports)
        if libraries:
            libraries = {name: unexpected for name in libraries if (unexpected := _unexpected(libraries[name]))}
    return replace(
        response,
        results=tuple(results),
        score_type=UNSET,
        sources=reports,
        libraries=libraries,
    )


def _unexpected(reports: Mapping[str, SourceReport]) -> Mapping[str, SourceReport]:
    return {name: report for name, report in reports.items() if report.status != "ok" or report.read_as}


def item_without_repetition(item: KnowledgeItem) -> KnowledgeItem:
    """The `uri` says the source's id of the item and, for a message, of the message."""
    created_at, last_modified = to_minute(item.created_at or None), to_minute(item.last_modified)
    return replace(
        item,
        id="",
        score=round(item.score, _SCORE_DIGITS),
        score_type=UNSET,
        created_at=UNSET if created_at == last_modified else created_at,
        last_modified=last_modified,
        version=UNSET if item.version == 1 else item.version,
        tags=item.tags or None,
        conversation_id=None,
        message_id=None,
        loc=position_in(item.uri, item.loc),
    )


_NO_LOC = Loc()


def position_in(uri: str, loc: Loc | None) -> Loc | None:
    """What `loc` adds to a URI: the position, in one way to name it. A part of an item, such as a message, is named by
    the URI."""
    if loc is None:
        return None
    if "/" in uri.partition("://")[2]:
        loc = Loc(approx_offset=loc.approx_offset)
    elif loc.seconds is not None:
        loc = Loc(seconds=loc.seconds)
    elif loc.chunk_index is not None:
        loc = Loc(chunk_index=loc.chunk_index)
    else:
        loc = replace(loc, media_id=None, conversation_id=None)
    return loc if loc != _NO_LOC else None


# Items that are created together have the same times, and a result asks for its own four times.
@lru_cache(maxsize=256)
def to_minute(timestamp: str | None) -> str | None:
    """Leaves out the seconds: 2026-01-10T09:15:33Z is 2026-01-10T09:15Z."""
    if timestamp is None or len(timestamp) < _TIME_CHARS or timestamp[_MINUTE_CHARS] != ":":
        return timestamp
    return f"{timestamp[:_MINUTE_CHARS]}Z" if timestamp.endswith("Z") else timestamp
