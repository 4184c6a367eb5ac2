"""Settings of single sources: entries `SOURCE.SETTING=VALUE` of `source_limits`, such as `media.breaker_failures=3`."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

# The settings that can be set for one source. The others concern all sources together.
SOURCE_SETTINGS = (
    "search_deadline_ms",
    "retrieval_default_tokens",
    "retrieval_max_tokens",
    "breaker_failures",
    "breaker_pause_s",
)


def limits_of(source: str, entries: Iterable[str]) -> dict[str, str]:
    """Returns the settings of one source, as text."""
    split = (_split(entry) for entry in entries)
    return {setting: value for name, setting, value in split if name == source}


def limit_problems(entries: Iterable[str], settings: type[Struct]) -> Iterator[str]:
    """Yields what is wrong with the entries, as a sentence for the operator."""
    for entry in entries:
        source, setting, value = _split(entry)
        if not source or setting not in SOURCE_SETTINGS:
            names = ", ".join(SOURCE_SETTINGS)
            yield f"source_limits: expected SOURCE.SETTING=VALUE with one of the settings {names}, got {entry!r}"
            continue
        try:
            msgspec.convert({setting: value}, settings, strict=False)
        except msgspec.ValidationError as error:
            yield f"source_limits: {entry!r}: {error}"


def _split(entry: str) -> tuple[str, Any, str]:
    name, _, value = entry.partition("=")
    source, _, setting = name.strip().partition(".")
    return source, setting, value.strip()
