"""What a search of all sources asks each of them: the filters of the call, checked against what the source knows. A
wrong one is refused with a sentence that names the right ones."""

import difflib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import fields

from aggregator.fanout import Inquiry
from config.errors import InvalidParams
from sources.source import Source

# Every source takes these; the call has them for all.
COMMON = frozenset({"query", "limit", "offset", "snippet_length"})


def filter_names(source: Source) -> tuple[str, ...]:
    """What only this source can be asked."""
    return _filter_names(source.search_input)  # type: ignore[arg-type]  # mypy takes the hash of its instances


# Annotations are read again for every look at the fields, and what a source takes never changes.
@lru_cache(maxsize=64)
def _filter_names(search_input: type[Any]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in fields(search_input) if field.encode_name not in COMMON)


def choose_sources(sources: Mapping[str, Source], named: Sequence[str]) -> dict[str, Source]:
    """The sources a call names, in our order; all if it names none."""
    for name in named:
        if name not in sources:
            raise InvalidParams(f"sources: got {name[:40]!r},{_hint(name, sources)} expected some of {_list(sources)}")
    return {name: source for name, source in sources.items() if not named or name in named}


def read_inquiries(
    chosen: Mapping[str, Source], known: Mapping[str, Source], query: str, filters: Mapping[str, Mapping[str, Any]]
) -> dict[str, Inquiry]:
    for name in filters:
        if name not in known:
            raise InvalidParams(f"filters: got {name[:40]!r},{_hint(name, known)} expected some of {_list(known)}")
        if name not in chosen:
            raise InvalidParams(
                f"filters.{name}: got filters for a source that is not searched; expected {name!r} in sources"
            )
    return {name: _inquiry(source, query, filters.get(name) or {}) for name, source in chosen.items()}


def _inquiry(source: Source, query: str, given: Mapping[str, Any]) -> Inquiry:
    allowed = filter_names(source)
    for name in given:
        if name not in allowed:
            expected = f"some of {_list(allowed)}" if allowed else f"no filters: {source.name} have none"
            raise InvalidParams(f"filters.{source.name}: got {name[:40]!r},{_hint(name, allowed)} expected {expected}")
    narrowing = {name: value for name, value in given.items() if value is not None}
    try:
        asked = msgspec.convert({"query": query, **narrowing}, source.search_input, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParams(_correction(source.name, str(error))) from error
    return Inquiry(source, asked, bool(narrowing))


def _correction(source: str, problem: str) -> str:
    what, _, where = problem.partition(" - at `$.")
    field = f".{where.rstrip('`')}" if where else ""
    return f"filters.{source}{field}: {what[:1].lower()}{what[1:]}"


def _hint(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" did you mean {near[0]!r}?" if near else ""


def _list(names: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(names)
