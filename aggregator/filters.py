"""Builds the search arguments of each source from those of a search of all sources. An unknown source or filter is
rejected with a message that lists the valid ones."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import fields

from auth.principal import Principal
from config.errors import InvalidParams
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


def choose_sources(sources: Mapping[str, Source], names: Sequence[str]) -> dict[str, Source]:
    """The named sources in the order of the registry; all of them if none is named."""
    for name in names:
        if name not in sources:
            raise _unknown("sources", name, sources)
    return {name: source for name, source in sources.items() if not names or name in names}


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
    return {name: _arguments(source, common, set_filters(filters, name)) for name, source in chosen.items()}


def set_filters(filters: Mapping[str, Mapping[str, Any]], source: str) -> dict[str, Any]:
    """The filters of a source that are not null."""
    return {name: value for name, value in (filters.get(source) or {}).items() if value is not None}


def _arguments(source: Source, common: Mapping[str, Any], filters: Mapping[str, Any]) -> Any:
    try:
        return msgspec.convert({**common, **filters}, source.search_input, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParams(_error_message(source.name, str(error))) from error


def _error_message(source: str, problem: str) -> str:
    reason, _, path = problem.partition(" - at `$.")
    field = f".{path.rstrip('`')}" if path else ""
    return f"filters.{source}{field}: {reason[:1].lower()}{reason[1:]}"


def _unknown(argument: str, name: str, known: Collection[str]) -> InvalidParams:
    similar = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else ""
    expected = f"any of {', '.join(known)}" if known else "no filters"
    return InvalidParams(f"{argument}: expected {expected}, got {name[:40]!r}{hint}")
