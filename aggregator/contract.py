"""What a search of all sources is asked for and what it returns: its defaults, its arguments and those of each source,
and the response, which is that of a single source, extended.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import fields, replace

from auth.context import Principal, RequestContext
from config.errors import InvalidParams, SessionNotFound
from sessions.state import SessionHandle, SessionStates, handle_for
from sources.items import Loc, RequestDefaults, ResultItem, SearchResponse, read_time_zone
from sources.query import ParsedQuery
from sources.search.arguments import matches_nothing
from sources.source import Source

# -- defaults ----------------------------------------------------------------------------------------------------------
# The defaults of a call: options that it does not set come from its session, else from the request's `config`, else
# from the settings. A `config` can hold only these options: no credential, no user, no path.

Dedupe = Literal["hide", "demote", "off"]
ResultText = Literal["markdown", "json"]
Shape = Literal["canonical", "compact"]
# A config ends up in URLs, browser histories and proxy logs, so keys with such names get an explicit error.
_SENSITIVE_KEY = re.compile(
    r"token(?!s)|secret|passw|api.?key|credential|auth|bearer|cookie|user|tenant|owner|path|db|dsn|jwt"
)


class SearchDefaults(RequestDefaults, frozen=True, kw_only=True):
    """Request defaults, with those that apply only to a search of all sources.

    `hit_fields` is "all" for clients that read every field of tldw's results: then no field is omitted because another
    one says the same, and a page has tldw's size. `result_text` is what the text of a result is: Markdown for a model,
    or the JSON of the structured content for a program that parses it. `seen_max` is how many delivered items the
    session remembers, at most `session_seen_max`.
    """

    dedupe: Dedupe | None = None
    hit_fields: Literal["needed", "all"] | None = None
    result_text: ResultText | None = None
    shape: Shape | None = None
    seen_max: int | None = None


def with_session_defaults(context: RequestContext, defaults: Mapping[str, Any]) -> RequestContext:
    """The defaults of the session override those of the request."""
    return replace(context, config={**context.config, **defaults})


def search_defaults(context: RequestContext) -> SearchDefaults:
    try:
        return msgspec.convert(dict(context.config), SearchDefaults, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config: {error}") from error


async def session_context(
    session_states: SessionStates, context: RequestContext, session: str | None = None
) -> RequestContext:
    """Adds the defaults of the session that the call names, or else of its connection's session. Creates no session
    state: without one, the context is returned unchanged."""
    owner = context.principal.owner()
    if session is not None:
        state = await session_states.get(SessionHandle(session), owner)
    elif context.session is not None:
        try:
            state = await session_states.get(handle_for(context.session), owner)
        except SessionNotFound:
            return context
    else:
        return context
    return with_session_defaults(context, state.defaults) if state.defaults else context


def read_config(config: Any) -> Mapping[str, Any]:
    """Validates the config of a request or a handshake. Unknown keys and wrong types are rejected; numbers out of range
    are clamped where they are used. tldw's keys become ours."""
    if not isinstance(config, Mapping):
        raise InvalidParams(f"config: expected an object with any of {_KEYS}, got {type(config).__name__}")
    values: dict[str, Any] = {}
    for name, given in config.items():
        key, value = _from_tldw(name, given) if name in _TLDW_KEYS else (name, given)
        if key is None:
            continue
        if key != name and key in config:
            raise InvalidParams(f"config: expected one of {name} and {key}, got both")
        values[key] = _read_value(key, value)
    return MappingProxyType({key: value for key, value in values.items() if value is not None})


_TYPES = {field.name: field.type for field in fields(SearchDefaults)}
_KEYS = ", ".join(_TYPES)

_TLDW_KEYS = {"aliasMode": bool, "compactShape": bool, "maxSessionUris": int}


def _from_tldw(key: str, value: Any) -> tuple[str | None, Any]:
    """Returns our key and value for one of tldw, or None as the key if it asks for what is the case anyway."""
    try:
        value = msgspec.convert(value, _TLDW_KEYS[key] | None)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config.{key}: {error}") from error
    if key == "maxSessionUris":
        return "seen_max", value
    if key == "compactShape":
        return "shape", value if value is None else "compact" if value else "canonical"
    if value is False:
        raise InvalidParams(
            "config.aliasMode: expected true, got false: search and fetch are always listed, because a list does not "
            "depend on the config; connect to /mcp/compact, which lists only knowledge_search and knowledge_get"
        )
    return None, None


def _read_value(key: str, value: Any) -> Any:
    if key not in _TYPES:
        if _SENSITIVE_KEY.search(key.lower()):
            raise InvalidParams(
                f"config: expected any of {_KEYS}, got {key[:60]!r}; a config cannot carry credentials, users or paths"
            )
        raise InvalidParams(f"config: expected any of {_KEYS}, got {key[:60]!r}")
    try:
        converted = msgspec.convert(value, _TYPES[key])
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config.{key}: {error}") from error
    if key == "time_zone" and converted is not None:
        read_time_zone("config.time_zone", converted)
    return converted


# -- arguments ---------------------------------------------------------------------------------------------------------
# The arguments of a search, and from them those of each source. An unknown source or filter is rejected with a message
# that lists the valid ones.


class KnowledgeSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `knowledge_search`. Numbers out of range are clamped."""

    query: Annotated[str, Meta(description='Words, "phrases", prefix*, AND OR NOT, -word, tag:, after:2026-01-31.')]
    limit: Annotated[int | None, Meta(description="Results per page, 1..100; default 8.")] = None
    offset: Annotated[int, Meta(description="next_offset of the previous page.")] = 0
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000; default 300.")] = None
    sources: Annotated[tuple[str, ...], Meta(description="Default all.")] = ()
    libraries: Annotated[tuple[str, ...], Meta(description="Names; own is the user's. Default all.")] = ()
    order_by: Annotated[Literal["relevance", "recent"] | None, Meta(description="Default relevance.")] = None
    filters: Annotated[dict[str, dict[str, Any]], Meta(description="By source.")] = {}
    session: Annotated[str | None, Meta(description="session of an earlier response.")] = None
    dedupe: Annotated[Dedupe | None, Meta(description="For hits this session has seen; default hide.")] = None
    deadline_ms: Annotated[int | None, Meta(description="Slower sources are skipped.")] = None
    explain: Annotated[bool, Meta(description="Explain the ranking.")] = False


class FacetedSearch(KnowledgeSearch, frozen=True, kw_only=True):
    """The arguments of a search over REST."""

    facets: Annotated[bool, Meta(description="Count the first results by source, month, tag and more.")] = False


# Every source takes these; the search of all sources has arguments for them.
COMMON = frozenset({"query", "limit", "offset", "snippet_length"})


def filter_names(source: Source) -> tuple[str, ...]:
    """The arguments that only this source has."""
    return _filter_names(source.search_input)  # type: ignore[arg-type]  # mypy checks the hash of its instances


# msgspec evaluates annotations for each call of `fields`, and the fields of a source never change.
@lru_cache(maxsize=64)
def _filter_names(search_input: type[Any]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in fields(search_input) if field.encode_name not in COMMON)


def permitted_sources(sources: Mapping[str, Source], principal: Principal) -> Mapping[str, Source]:
    """The sources that the caller's credential may use; the others do not exist for it."""
    if principal.sources is None:
        return sources
    return {name: source for name, source in sources.items() if principal.permits_source(name)}


def choose_sources(
    permitted: Mapping[str, Source], names: Sequence[str], query: ParsedQuery
) -> tuple[Mapping[str, Source], str | None]:
    """The named sources in the order of the registry, all of them if none is named, that a `source:` filter in the
    query allows; and the `read_as`."""
    for name in names:
        if name not in permitted:
            raise _unknown("sources", name, permitted)
    sources = {name: source for name, source in permitted.items() if name in names} if names else permitted
    if not query.filters.sources:
        return sources, query.read_as
    allowed = {name.lower() for name in query.filters.sources}
    matching = {name: source for name, source in sources.items() if name in allowed}
    if matching:
        return matching, query.read_as
    return {}, matches_nothing(f"source:{query.filters.sources[0]}", f"this searches {', '.join(sources)}")


def build_arguments(request: KnowledgeSearch, chosen: Mapping[str, Source], known: Collection[str]) -> dict[str, Any]:
    """An instance of `search_input` for each chosen source; limit and offset are left at their defaults."""
    filters = request.filters
    for source_name, source_filters in filters.items():
        if source_name not in known:
            raise _unknown("filters", source_name, known)
        if source_name not in chosen:
            raise InvalidParams(
                f"filters.{source_name}: expected only filters of searched sources; {source_name!r} is not one"
            )
        allowed = filter_names(chosen[source_name])
        for name in source_filters or ():
            if name not in allowed:
                raise _unknown(f"filters.{source_name}", name, allowed)
    common: dict[str, Any] = {"query": request.query}
    if request.snippet_length is not None:
        common["snippet_length"] = request.snippet_length
    arguments: dict[str, Any] = {}
    for name, source in chosen.items():
        given = {**common, **set_filters(filters, name)} if name in filters else common
        try:
            arguments[name] = msgspec.convert(given, source.search_input, strict=False)
        except msgspec.ValidationError as error:
            reason, _, path = str(error).partition(" - at `$.")
            field = f".{path.rstrip('`')}" if path else ""
            raise InvalidParams(f"filters.{name}{field}: {reason[:1].lower()}{reason[1:]}") from error
    return arguments


def set_filters(filters: Mapping[str, Mapping[str, Any]], source: str) -> dict[str, Any]:
    """The filters of a source that are not null."""
    return {name: value for name, value in (filters.get(source) or {}).items() if value is not None}


def _unknown(argument: str, name: str, known: Collection[str]) -> InvalidParams:
    import difflib  # noqa: PLC0415 - only such errors need it

    similar = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else ""
    expected = f"any of {', '.join(known)}" if known else "no filters"
    return InvalidParams(f"{argument}: expected {expected}, got {name[:40]!r}{hint}")


# -- response ----------------------------------------------------------------------------------------------------------

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
    failed: list[tuple[str, SourceReport]] = []
    for library, reports in (("", response.sources), *response.libraries.items()):
        for name, report in reports.items():
            if report.status != "ok":
                failed.append((f"{name} of {library}" if library else name, report))
    return failed


def without_repetition(response: KnowledgeResponse) -> KnowledgeResponse:
    """The response as clients get it: it reports what is not as expected, and no result repeats what the response, its
    URI or another of its fields says. A program that needs such a field sets `hit_fields` to "all" in its config, or
    uses a source's own search."""
    reports, libraries = response.sources, response.libraries
    if response.explain is UNSET:
        reports = _unexpected(reports)
        if libraries:
            libraries = {name: unexpected for name in libraries if (unexpected := _unexpected(libraries[name]))}
    return replace(
        response,
        results=tuple(map(item_without_repetition, response.results)),
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
