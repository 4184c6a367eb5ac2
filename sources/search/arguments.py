"""What the searches of all sources have in common: the arguments, the filters a query names, the shape of the answer.

A filter that nothing in a source can pass finds nothing there, and the answer says why: a note has no sender.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Annotated, Literal, Protocol

from msgspec import UNSET, Meta, Struct

from auth.context import RequestContext
from config.errors import InvalidParams
from config.numbers import clamp
from config.settings import Settings
from config.times import format_time, parse_time
from sources.items import TAGS_MAX, Loc, ResultItem, short_title
from sources.preferences import Preferences, preferences_of
from sources.query import Filters, ParsedQuery, QueryLimits, Term, parse, with_filters
from sources.reading.retrieval import chars_per_token, snippet_length
from sources.records import Hit, HitPage
from sources.search.snippets import Highlighter, Snippet
from sources.source import Match, Matches
from sources.storage.contract import Order, Scoring, Search
from sources.text.token_estimates import TokenScale

LIMIT_MAX = 100
# What a score is: the share of the query that is found in a hit, or the seed's place between the worst and the best.
SCORE_TYPES: Mapping[Scoring, str] = {"comparable": "fts_coverage", "minmax": "fts"}
# Far beyond what anyone pages through, and a number every engine can count to.
OFFSET_MAX = 1_000_000_000


class SearchArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of every search. Numbers out of range are moved to the nearest that is allowed."""

    query: Annotated[str, Meta(description='Words, "phrases", prefix*, OR, -word.')]
    limit: Annotated[int, Meta(description="Hits per page, 1..100.")] = 10
    offset: Annotated[int, Meta(description="next_offset of the page before.")] = 0
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000; default 300.")] = None


class Searchable(Protocol):
    """A collection of a library."""

    async def search(self, search: Search) -> HitPage: ...


class Narrowing(Struct, frozen=True, kw_only=True):
    """How a source's own arguments limit a search, and which of a query's filters its items can pass at all."""

    obeys: frozenset[str] = frozenset()
    order: Order | None = None
    tags: tuple[str, ...] = ()
    media_types: tuple[str, ...] = ()
    date_from: str | None = None
    date_to: str | None = None
    by: Literal["both", "title", "message"] = "both"
    character_id: int | None = None
    senders: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


class Question(Struct, frozen=True, kw_only=True):
    """A search as it was read. Without `search` nothing can be found, and `read_as` says why."""

    search: Search | None
    terms: tuple[Term, ...]
    read_as: str | None
    offset: int
    snippet_chars: int
    scale: TokenScale
    score_type: str


def read_query(text: str, settings: Settings) -> ParsedQuery:
    return _read(text, settings.query_max_chars, settings.query_max_terms)


# Five sources ask the same question at the same time; later questions are others.
@lru_cache(maxsize=64)
def _read(text: str, max_chars: int, max_terms: int) -> ParsedQuery:
    return parse(text, QueryLimits(max_chars=max_chars, max_terms=max_terms))


@lru_cache(maxsize=64)
def _highlighter(terms: tuple[Term, ...], topic: tuple[Term, ...]) -> Highlighter:
    return Highlighter(terms, topic)


def read_question(
    source: str,
    asked: SearchArguments,
    query: ParsedQuery,
    context: RequestContext,
    settings: Settings,
    narrowing: Narrowing | None = None,
) -> Question:
    preferred = preferences_of(context.config)
    narrowing = narrowing or Narrowing()
    offset = clamp(asked.offset, 0, OFFSET_MAX)
    obstacle = _obstacle(source, narrowing, query.filters) or _contradiction(narrowing, query.filters)
    search = None if obstacle else _search(asked.limit, offset, query, narrowing, preferred, settings)
    return Question(
        search=search,
        terms=query.terms,
        read_as=obstacle or _read_as(query, search),
        offset=offset,
        snippet_chars=snippet_length(asked.snippet_length, preferred, settings),
        scale=TokenScale(chars_per_token(None, preferred)),
        score_type=SCORE_TYPES[settings.search_scoring],
    )


def _read_as(query: ParsedQuery, search: Search | None) -> str | None:
    """Returns the query's own `read_as`, unless it has no words and the source's arguments select the items."""
    if query.read_as is None or query.expression is not None or search is None or not search.has_filters:
        return query.read_as
    return with_filters(query.read_as)


def _search(
    limit: int,
    offset: int,
    query: ParsedQuery,
    narrowing: Narrowing,
    preferred: Preferences,
    settings: Settings,
) -> Search:
    named = query.filters
    return Search(
        query=query,
        limit=clamp(limit, 1, LIMIT_MAX),
        offset=offset,
        order=narrowing.order or preferred.order_by or "relevance",
        scoring=settings.search_scoring,
        deadline_ms=settings.search_deadline_ms,
        tags=(*narrowing.tags, *named.tags),
        media_types=_common(narrowing.media_types, named.types),
        date_from=max(filter(None, (narrowing.date_from, _first_moment(named.after))), default=None),
        date_to=min(filter(None, (narrowing.date_to, _last_moment_before(named.before))), default=None),
        by=narrowing.by,
        character_id=narrowing.character_id,
        senders=_common(narrowing.senders, named.senders),
        fields=narrowing.fields,
    )


def _obstacle(source: str, narrowing: Narrowing, named: Filters) -> str | None:
    """Why a filter of the query leaves nothing of this source."""
    if named.sources and source not in (name.lower() for name in named.sources):
        return f"nothing: this searches {source}, and the query asks for source:{named.sources[0]}"
    for what, values in (("type", named.types), ("sender", named.senders)):
        if values and what not in narrowing.obeys:
            return f"nothing: {source} have no {what}, and the query asks for {what}:{values[0]}"
    return None


def _contradiction(narrowing: Narrowing, named: Filters) -> str | None:
    for what, given, asked in (
        ("type", narrowing.media_types, named.types),
        ("sender", narrowing.senders, named.senders),
    ):
        if given and asked and not _common(given, asked):
            return f"nothing: the query asks for {what}:{asked[0]}, and the arguments for {given[0]}"
    return None


def _common(given: tuple[str, ...], named: tuple[str, ...]) -> tuple[str, ...]:
    """What both lists allow, in any case; an empty list allows everything."""
    if not given or not named:
        return given or named
    allowed = {name.casefold() for name in named}
    return tuple(name for name in given if name.casefold() in allowed)


async def find_matches(
    collection: Searchable,
    question: Question,
    uri: Callable[[Hit], str],
    item: Callable[[Hit, Question, Highlighter], ResultItem],
) -> Matches:
    """One page. What is particular to a source's hits is said by `uri` and `item`."""
    found = HitPage((), has_more=False, total=0)
    if question.search is not None:
        found = await collection.search(question.search)

    def show(match: Match, topic: Sequence[Term]) -> ResultItem:
        return item(match.hit, question, _highlighter(question.terms, tuple(topic)))

    return Matches(
        found=tuple([_match(hit, uri(hit)) for hit in found.hits]),
        has_more=found.has_more,
        next_offset=question.offset + len(found.hits) if found.has_more else None,
        total_estimated=found.total,
        show=show,
        read_as=question.read_as,
    )


def _match(hit: Hit, uri: str) -> Match:
    return Match(
        uri=uri,
        id=hit.conversation_id or hit.id,
        score=hit.score,
        last_modified=hit.last_modified,
        version=hit.version,
        # The same passage answers the query, and the items are equally long.
        content=(hit.text, hit.item_chars) if hit.text else None,
        bm25=hit.bm25,
        hit=hit,
    )


def result_item(source: str, hit: Hit, question: Question, uri: str, snippet: Snippet, loc: Loc) -> ResultItem:
    """A hit as it goes over the wire. The fields that only some sources have are null where the hit has none."""
    return ResultItem(
        id=hit.id,
        source=source,
        title=short_title(hit.title),
        snippet=snippet.text or None,
        uri=uri,
        score=hit.score,
        score_type=question.score_type,
        created_at=hit.created_at,
        last_modified=hit.last_modified,
        version=hit.version,
        tags=hit.tags[:TAGS_MAX],
        media_type=hit.media_type,
        url=hit.url or None,
        conversation_id=hit.conversation_id,
        message_id=hit.message_id,
        sender=hit.sender,
        loc=loc,
        highlights=snippet.ranges or UNSET,
        more_in_item=hit.more_in_item or UNSET,
        cost_tokens=question.scale.estimate_tokens(hit.text, hit.item_chars),
    )


def locate(highlighter: Highlighter, text: str) -> int | None:
    """About where in a text the densest match is. Never behind it: a snippet has less white space than its text."""
    found = highlighter.snippet(text)
    return place_in(found) if found.ranges else None


def place_in(snippet: Snippet) -> int:
    """About where in the text of a snippet its first match is."""
    return snippet.start + (snippet.ranges[0][0] if snippet.ranges else 0)


def moment(argument: str, text: str | None, *, is_end: bool = False) -> str | None:
    """An ISO 8601 date or time as a moment in our one form. A date is its first moment, or at an end its last; a time
    without a zone is UTC."""
    if text is None:
        return None
    try:
        if len(text) == len("2026-11-15"):
            day = date.fromisoformat(text)
            return _last_moment_before(day + timedelta(days=1)) if is_end else _first_moment(day)
        found = parse_time(text)
    except (ValueError, OverflowError) as error:
        raise InvalidParams(
            f"{argument}: got {text[:40]!r}, expected an ISO 8601 date such as 2026-11-15 or time such as "
            "2026-11-15T08:30:00Z"
        ) from error
    return format_time(found)


def _first_moment(day: date | None) -> str | None:
    return format_time(datetime.combine(day, time.min, UTC)) if day is not None else None


def _last_moment_before(day: date | None) -> str | None:
    if day is None:
        return None
    midnight = datetime.combine(day, time.min, UTC)
    # The first day of the calendar has no moment before it; nothing is that old either.
    return format_time(midnight - timedelta(milliseconds=1) if day > date.min else midnight)
