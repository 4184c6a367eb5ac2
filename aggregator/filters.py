"""Builds the search arguments of each source from those of a search of all sources. An unknown source or filter is
rejected with a message that lists the valid ones.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec.structs import fields, replace

from auth.context import Principal, RequestContext
from config.errors import InvalidParams, SessionNotFound
from sessions.state import SessionHandle, SessionStates, handle_for
from sources.items import RequestDefaults, read_time_zone
from sources.query import ParsedQuery
from sources.search.arguments import matches_nothing
from sources.source import Source

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


def build_arguments(
    chosen: Mapping[str, Source],
    known: Collection[str],
    query: str,
    snippet_length: int | None,
    filters: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """An instance of `search_input` for each chosen source; limit and offset are left at their defaults."""
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
    common = {"query": query} if snippet_length is None else {"query": query, "snippet_length": snippet_length}
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
    return replace(context, config={**context.config, **defaults}) if defaults else context


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
        return with_session_defaults(context, (await session_states.get(SessionHandle(session), owner)).defaults)
    if context.session is None:
        return context
    try:
        state = await session_states.get(handle_for(context.session), owner)
    except SessionNotFound:
        return context
    return with_session_defaults(context, state.defaults)


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
