"""Counts the first results of a search by source, month, tag, media type, sender and namespace, so that people can
narrow it. Only REST and the console ask for this: the arguments of a tool are read by a model in every session."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import tzinfo
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from aggregator.contract import KnowledgeResponse
from aggregator.fanout import Fanout
from aggregator.ranking import MergedRanking
from config.times import parse_time
from sources.records import HitFacets
from sources.storage.contract import Library

# A result is counted from what ranking has read of it. 200 results are two more reads at most. All that was read is
# counted, so that it can be some more.
COUNTED_RESULTS_MIN = 200
# Of months, tags, senders and namespaces, only the most frequent values are offered.
_VALUES_MAX = 24
_YEAR_CHARS = len("2026")
_MONTH_CHARS = len("2026-01")


class FacetCount(Struct, frozen=True):
    value: str
    count: int


class Facets(Struct, frozen=True, kw_only=True):
    """How many of the first results of a search have each value, most frequent first. `counted` is the number of these
    results, and `is_complete` says whether they are all. `years` and `months` are those in which the items were
    created, newest first, in the time zone of the request."""

    counted: int
    is_complete: bool
    sources: tuple[FacetCount, ...]
    years: tuple[FacetCount, ...]
    months: tuple[FacetCount, ...]
    tags: tuple[FacetCount, ...]
    media_types: tuple[FacetCount, ...]
    senders: tuple[FacetCount, ...]
    namespaces: tuple[FacetCount, ...]


class FacetedResponse(KnowledgeResponse, frozen=True, kw_only=True, omit_defaults=True):
    facets: Annotated[Facets, Meta(description="Counts of the first results, if they were requested.")] | UnsetType = (
        UNSET
    )


async def count_facets(ranking: MergedRanking, fanout: Fanout, library: Library, time_zone: tzinfo) -> Facets:
    """Reads the ranking on, after the page was selected. Hits of the same item are one result."""
    # Items of another library may have the same id.
    items: dict[tuple[str, str | int], list[HitFacets]] = {}
    sources: dict[tuple[str, str | int], str] = {}
    for hit in await ranking.read_results(COUNTED_RESULTS_MIN):
        item = hit.stream or hit.source, hit.id
        sources[item] = hit.source
        # Of third-party sources, nothing more is known than that they have a hit.
        items.setdefault(item, []).extend([hit.payload.facets] if item[0] in fanout.own else ())

    def count(values_of: Callable[[HitFacets], Iterable[str | None]]) -> Counter[str]:
        """An item counts once for each value, however many of its passages have it."""
        distinct = ({value for one in found for value in values_of(one) if value} for found in items.values())
        return Counter(value for values in distinct for value in values)

    def count_periods(chars: int) -> tuple[FacetCount, ...]:
        counts = count(lambda one: (parse_time(one.created_at).astimezone(time_zone).isoformat()[:chars],))
        return tuple([FacetCount(*pair) for pair in sorted(counts.items(), reverse=True)[:_VALUES_MAX]])

    # The namespaces of other libraries are not the caller's to choose from.
    chats = [str(item) for source, item in items if source == "chats"]
    spellings = {tag.casefold(): tag for found in items.values() for one in found for tag in one.tags}
    tags = count(lambda one: map(str.casefold, one.tags))
    return Facets(
        counted=len(items),
        is_complete=ranking.is_read,
        sources=_most_frequent(Counter(sources.values())),
        years=count_periods(_YEAR_CHARS),
        months=count_periods(_MONTH_CHARS),
        tags=_most_frequent(Counter({spellings[tag]: number for tag, number in tags.items()})),
        media_types=_most_frequent(count(lambda one: (one.media_type,))),
        senders=_most_frequent(count(lambda one: (one.sender,))),
        namespaces=_most_frequent(Counter(await library.chats.namespace_counts(chats)) if chats else Counter()),
    )


def _most_frequent(counts: Counter[str]) -> tuple[FacetCount, ...]:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple([FacetCount(*pair) for pair in ordered[:_VALUES_MAX]])
