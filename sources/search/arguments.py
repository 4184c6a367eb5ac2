"""What the searches of all sources share: their arguments, and the query that is built from them.

Filters can be written in the query text (`type:video`, `sender:ada`). If no item of a source can pass one of them, the
source is not searched and `read_as` gives the reason.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from auth.context import LibraryAccess, RequestContext
from config.errors import InvalidParams
from config.numbers import clamp
from config.settings import Settings
from config.times import format_time
from sources.items import chars_per_token, local_time, request_defaults, snippet_length
from sources.query import AnyOf, Filters, ParsedQuery, QueryLimits, Term, parse, with_filters
from sources.query.parser import can_have_near_terms
from sources.search.snippets import Highlighter, Snippet
from sources.storage.contract import Order, Ranking, Scoring, Search
from sources.text.folding import fold
from sources.text.segmentation import UNSPACED_RUN
from sources.text.token_estimates import TokenScale
from sources.times import TimeMention, TimeSpan, asks_for_anything, read_time, resolve
from sources.times.words import RecentPeriod

# Terms of a query. Each one is a lookup in the index and part of the score.
QUERY_MAX_TERMS = 32
# Those of a long query of plain words, of which the rarest are searched for.
_READ_TERMS_MAX = 128

# -- query times -------------------------------------------------------------------------------------------------------
# Resolves the times that a query mentions, and says how they were read.

_MILLISECOND = timedelta(milliseconds=1)
# The time that these name is not part of the range.
_OUTSIDE = ("before", "after")


def resolve_times(query: ParsedQuery, now: datetime) -> ParsedQuery:
    """Returns the query with the ranges of the times it mentions, as seen at `now`. What has not begun is ignored:
    nothing was created then.

    A query that consists of a relative time only, such as "yesterday" or "was habe ich gestern gemacht?", lists what
    was created then; the words themselves would find little.
    """
    if not query.mentions:
        return query
    spans = {mention: span for mention in query.mentions if (span := _past(mention, now)) is not None}
    if not spans:
        return query
    times = tuple(spans.values())
    time_terms = frozenset(index for index, term in enumerate(query.terms) if _names_time(term, times))
    is_listing = (
        len(times) == 1
        and all(mention.is_relative for mention in spans)
        and (len(time_terms) == len(query.terms) or asks_for_anything(query.prose, times[0].words))
    )
    if is_listing and query.expression is not None:
        return replace(
            query,
            expression=None,
            terms=(),
            filters=replace(query.filters, during=times[0]),
            read_as=f"filter only, newest first; created {_describe(times[0], now)}",
        )
    query = _without_limits(query, [span for mention, span in spans.items() if mention.bound in _OUTSIDE])
    time_terms = frozenset(index for index, term in enumerate(query.terms) if _names_time(term, times))
    note = f"ranked higher what was created {' or '.join(_describe(span, now) for span in times)}"
    read_as = f"{query.read_as}; {note}" if query.read_as else note
    return replace(query, times=times, time_terms=time_terms, read_as=read_as)


def _past(mention: TimeMention, now: datetime) -> TimeSpan | None:
    span = resolve(mention, now)
    return span if span is not None and (span.start is None or span.start <= now) else None


def _without_limits(query: ParsedQuery, outside: Sequence[TimeSpan]) -> ParsedQuery:
    """Does not search for the words of "before 2024" and "after May": what contains them is of the wrong time."""
    dropped = [term for term in query.terms if _names_time(term, outside)]
    if not isinstance(query.expression, AnyOf) or not dropped or len(dropped) == len(query.terms):
        return query
    words = {term.word for term in dropped}
    parts = tuple(part for part in query.expression.parts if part not in words)
    terms = tuple(term for term in query.terms if term not in dropped)
    return replace(query, expression=parts[0] if len(parts) == 1 else AnyOf(parts), terms=terms)


def _names_time(term: Term, times: Sequence[TimeSpan]) -> bool:
    """Returns whether a term is part of the words of a time. In a text without spaces it is a part of a word."""
    text = fold(term.word.text).strip()
    if UNSPACED_RUN.search(text):
        return any(text in fold(span.words) for span in times)
    return any(set(text.split()) <= set(fold(span.words).split()) for span in times)


def _describe(span: TimeSpan, now: datetime) -> str:
    """Returns the range in the time zone of `now`, with its last day, and the words that name it."""
    if span.start is None or span.end is None:
        bound = f"before {_local(span.end, now)}" if span.end else f"since {_local(span.start, now)}"
    else:
        first, last = _local(span.start, now), _local(_just_before(span.end), now)
        bound = f"on {first}" if first == last else f"from {first} to {last}"
    return f"{bound} ({span.words})"


def _local(time: datetime | None, now: datetime) -> str:
    try:
        return time.astimezone(now.tzinfo).date().isoformat() if time is not None else ""
    except OverflowError:  # at the ends of Python's calendar
        return time.date().isoformat() if time is not None else ""


def start_of(span: TimeSpan) -> str | None:
    """Returns the first time of a span in the stored form."""
    return format_time(span.start) if span.start is not None else None


def last_of(span: TimeSpan) -> str | None:
    """Returns the last time of a span in the stored form, whose unit is the millisecond."""
    return format_time(_just_before(span.end)) if span.end is not None else None


def _just_before(time: datetime) -> datetime:
    """Python's calendar has no time before its first day, and no item is that old."""
    try:
        return time - _MILLISECOND
    except OverflowError:
        return time


LIMIT_MAX = 100
# Far beyond any real paging, and within the integer range of every engine.
OFFSET_MAX = 1_000_000_000
# "fts_coverage" is the weighted share of the query that a hit covers; "fts" is tldw's min-max score, which places a hit
# between the worst and the best of its result list.
SCORE_TYPES: Mapping[Scoring, str] = {"comparable": "fts_coverage", "minmax": "fts"}
_NO_FILTERS = Filters()
# The name of the caller's own library in the filter `library:`.
OWN_LIBRARY = "own"


class SearchArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of every source's search. Numbers out of range are clamped."""

    query: Annotated[str, Meta(description='Words, "phrases", prefix*, OR, -word.')]
    limit: Annotated[int, Meta(description="Hits per page, 1..100.")] = 10
    offset: Annotated[int, Meta(description="next_offset of the previous page.")] = 0
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000; default 300.")] = None


class SourceQuery(Struct, frozen=True, kw_only=True):
    """A search of one source: the request to the storage, and how its hits are rendered.

    `search` is None if no item can match; `read_as` then says why. `is_further` is true for a hit that is shown as a
    further passage of its item: then it has no cost, and its snippet does not begin with the messages before it.
    """

    search: Search | None
    terms: tuple[Term, ...]
    read_as: str | None
    offset: int
    snippet_chars: int
    scale: TokenScale
    score_type: str
    is_further: bool = False


# A key of the request config that no client can set: scores have to be comparable with those of other sources.
SEVERAL_SOURCES = "several_sources"
# The same for a search that does not show how many hits a source has: to count them takes a tenth of its SQL.
WITHOUT_TOTALS = "without_totals"


def read_query(text: str, settings: Settings) -> ParsedQuery:
    return _parse(text, settings.fixed.query_max_chars)


# All sources parse the same text during one search; older texts are not worth keeping.
@lru_cache(maxsize=64)
def _parse(text: str, max_chars: int) -> ParsedQuery:
    # Of plain words, the search chooses the rarest. What a pasted text is about may come late in it.
    query = parse(text, QueryLimits(max_chars=max_chars, max_terms=_READ_TERMS_MAX))
    if len(text) <= QUERY_MAX_TERMS or can_have_near_terms(query):
        return query
    return parse(text, QueryLimits(max_chars=max_chars, max_terms=QUERY_MAX_TERMS))


def build_query(
    source: str,
    args: SearchArguments,
    context: RequestContext,
    settings: Settings,
    *,
    parsed: ParsedQuery | None = None,
    supported_filters: Collection[str] = (),
    order: Order | None = None,
    tags: tuple[str, ...] = (),
    media_types: tuple[str, ...] = (),
    date_from: str | None = None,
    date_to: str | None = None,
    by: Literal["both", "title", "message"] = "both",
    character_id: int | None = None,
    senders: tuple[str, ...] = (),
    projects: tuple[str, ...] = (),
    namespace: str | None = None,
    contains: str | None = None,
    fields: tuple[str, ...] = (),
    ranking: Ranking = "fused",
) -> SourceQuery:
    """Combines a source's own arguments with the filters in the query text. `parsed` replaces the parsed `args.query`;
    of the filters "type" and "sender", a source names those that its items have in `supported_filters`."""
    defaults = request_defaults(context.config)
    query = parsed or read_query(args.query, settings)
    now = context.received_at
    # An unknown time zone is an error even if the query mentions no time.
    if query.mentions or query.filters != _NO_FILTERS or defaults.time_zone is not None:
        now = local_time(context, settings)
        query = resolve_times(query, now)
    search = Search(
        query=query,
        limit=clamp(args.limit, 1, LIMIT_MAX),
        offset=clamp(args.offset, 0, OFFSET_MAX),
        order=order or defaults.order_by or "relevance",
        scoring=settings.search_scoring,
        deadline_ms=settings.search_deadline_ms,
        tags=tags,
        media_types=media_types,
        date_from=date_from,
        date_to=date_to,
        by=by,
        character_id=character_id,
        senders=senders,
        projects=projects,
        namespace=namespace,
        contains=contains,
        fields=fields,
        ranking=ranking,
        is_strict=bool(defaults.strict),
        boosts_messages=settings.fixed.search_message_boost and SEVERAL_SOURCES not in context.config,
        is_one_of_several=SEVERAL_SOURCES in context.config,
        counts_hits=WITHOUT_TOTALS not in context.config,
    )
    conflict: str | None = None
    if query.filters != _NO_FILTERS:
        conflict = _unsupported_filter(source, supported_filters, query.filters, context.library) or _contradiction(
            search
        )
        search = _with_filters(search, now)
        if search.date_from is not None and search.date_to is not None and search.date_from > search.date_to:
            conflict = conflict or _empty_period(query.filters)
    # A query without words says that it found nothing, unless the source's arguments select the items.
    read_as = query.read_as
    if read_as is not None and query.expression is None and search.has_filters:
        read_as = with_filters(read_as)
    return SourceQuery(
        search=None if conflict else search,
        terms=query.terms,
        read_as=conflict or read_as,
        offset=search.offset,
        snippet_chars=snippet_length(args.snippet_length, defaults, settings),
        scale=TokenScale(chars_per_token(None, defaults)),
        score_type=SCORE_TYPES[settings.search_scoring],
    )


def _with_filters(search: Search, now: datetime) -> Search:
    """Adds the filters that are written in the query text."""
    filters = search.query.filters
    # The first and the last times that the filters of a query allow, in the stored form.
    starts, ends = [], []
    if filters.after is not None and (span := resolve(filters.after, now)):
        starts.append(start_of(span))
    if filters.before is not None and (span := resolve(filters.before, now)):
        ends.append(last_of(TimeSpan(None, span.start, "open")))
    if filters.during is not None:
        starts.append(start_of(filters.during))
        ends.append(last_of(filters.during))
    first, last = [time for time in starts if time], [time for time in ends if time]
    return replace(
        search,
        tags=(*search.tags, *filters.tags),
        media_types=_intersection(search.media_types, filters.types),
        date_from=max([*first, *filter(None, (search.date_from,))], default=None),
        date_to=min([*last, *filter(None, (search.date_to,))], default=None),
        senders=_intersection(search.senders, filters.senders),
    )


def _unsupported_filter(
    source: str, supported: Collection[str], filters: Filters, library: LibraryAccess | None
) -> str | None:
    names = (OWN_LIBRARY,) if library is None else (library.handle.casefold(), library.name.casefold())
    if filters.libraries and not any(name.casefold() in names for name in filters.libraries):
        return matches_nothing(f"library:{filters.libraries[0]}", f"this searches {names[-1]}")
    if filters.sources and source not in (name.lower() for name in filters.sources):
        return matches_nothing(f"source:{filters.sources[0]}", f"this searches {source}")
    for name, values in (("type", filters.types), ("sender", filters.senders)):
        if values and name not in supported:
            return matches_nothing(f"{name}:{values[0]}", f"{source} have no {name}")
    return None


def _contradiction(search: Search) -> str | None:
    filters = search.query.filters
    for name, arguments, values in (
        ("type", search.media_types, filters.types),
        ("sender", search.senders, filters.senders),
    ):
        if arguments and values and not _intersection(arguments, values):
            return matches_nothing(f"{name}:{values[0]}", f"the arguments select {arguments[0]}")
    return None


def _empty_period(filters: Filters) -> str | None:
    """Says why the times of the arguments and of the query leave none between them."""
    match filters.after, filters.before:
        case TimeMention(words=after), TimeMention(words=before):
            return matches_nothing(f"before:{before}", f"after:{after} allows only later times")
        case TimeMention(words=after), None:
            return matches_nothing(f"after:{after}", "the arguments allow only earlier times")
        case None, TimeMention(words=before):
            return matches_nothing(f"before:{before}", "the arguments allow only later times")
        case _:
            return None


def matches_nothing(filter_text: str, reason: str) -> str:
    """The `read_as` of a query with a filter that no item can pass."""
    return f"searched for nothing; {filter_text} cannot match: {reason}"


def _intersection(arguments: tuple[str, ...], values: tuple[str, ...]) -> tuple[str, ...]:
    """What both lists allow, ignoring case; an empty list allows everything."""
    if not arguments or not values:
        return arguments or values
    allowed = {name.casefold() for name in values}
    return tuple(name for name in arguments if name.casefold() in allowed)


def locate_match(highlighter: Highlighter, text: str) -> int | None:
    """Approximate offset of the densest match. Never too large: a snippet has less white space than its text."""
    snippet = highlighter.snippet(text)
    return first_match_offset(snippet) if snippet.ranges else None


def first_match_offset(snippet: Snippet) -> int:
    """Approximate offset of a snippet's first match in the original text."""
    return snippet.start + (snippet.ranges[0][0] if snippet.ranges else 0)


def parse_time_bound(
    argument: str, text: str | None, now: datetime | None = None, *, is_end: bool = False
) -> str | None:
    """Converts a date, a time or words such as "yesterday" and "7d" to the stored form.

    A day, month or year means its first millisecond, or its last one if `is_end`. `now` is the current time in the time
    zone of the user; without it, dates are in UTC.
    """
    if text is None:
        return None
    mention = read_time(text)
    span = resolve(mention, now or datetime.now(UTC)) if mention is not None else None
    if mention is None or span is None:
        raise InvalidParams(
            f"{argument}: expected a date such as 2026-11-15 or 2026-11, a time such as 2026-11-15T08:30:00Z, or words "
            f"such as yesterday, last week or 7d, got {text[:40]!r}"
        )
    # A period that reaches until now, such as 7d, names the time when it began.
    names_period = not isinstance(mention.expression, RecentPeriod) and span.precision != "instant"
    return last_of(span) if is_end and names_period else start_of(span)
