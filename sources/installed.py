"""What other installed distributions add, through entry points: sources, kinds of items, import formats, APIs of other
programs and storage engines. `docs/plugins.md` is the guide for their authors.

A distribution that cannot be loaded is logged and skipped, so that it does not keep the server from starting.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar
from zlib import crc32

from msgspec.structs import replace

from sources.kinds import ADDED_NUMBERS, Kind, validate_kind
from sources.records import CHARACTER, CONVERSATION, MEDIA, NOTE, OBSERVATION, PROMPT

T = TypeVar("T")

# The groups of entry points; that of storage engines is in `config.settings`.
SOURCES, KINDS, IMPORTERS = "florilegium.sources", "florilegium.kinds", "florilegium.importers"
COMPATIBILITY = "florilegium.compatibility"

# The tables of a library have these names, or derive theirs from them.
_TAKEN = frozenset(
    (
        *("chunks", "texts", "segments", "state", "idempotency", "agents", "namespaces", "messages", "conversations"),
        *("observations", "vectors", "library", "titles", "items", "knowledge", "memory", "session", "server", "bus"),
    )
)
# A kind has a number in the index of PostgreSQL, and a letter before its words: one of the private use area (Unicode
# 23.5), which is in no word. Both follow from its name, so that they stay the same on every server.
_NUMBERS, _FIRST_LETTER = 6_400, 0xE000


def installed_points(group: str) -> tuple[EntryPoint, ...]:
    return _points(group, tuple(sys.path))


@cache
def _points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Cached, because it reads a file of every installed distribution. `path` is where they are installed."""
    return tuple(entry_points(group=group))


def load_points(group: str, make: Callable[[Any], T]) -> Iterator[T]:
    """Yields what `make` returns for the object that each entry point of a group names. Third-party code can raise
    anything while it loads."""
    for point in installed_points(group):
        try:
            made = make(point.load())
        except (Exception, SystemExit) as error:
            from loguru import logger  # noqa: PLC0415 - loads 80 modules, and the help of commands needs the kinds only

            noun = group.removeprefix("florilegium.").removesuffix("s")
            logger.opt(exception=error).error("skipped the {} of {}: {}", noun, point.value, error)
        else:
            yield made


def _load_kinds() -> Iterator[Kind]:
    built_in = (NOTE, MEDIA, CONVERSATION, CHARACTER, PROMPT)
    taken = {name for kind in built_in for name in (kind.source, kind.name)} | _TAKEN
    numbers: set[int] = set()

    def prepare(kind: Kind) -> Kind:
        validate_kind(kind)
        number = crc32(kind.source.encode()) % _NUMBERS
        if {kind.source, kind.name} & taken or number in numbers:
            raise ValueError(f"the name {kind.source!r} or {kind.name!r} is taken")
        numbers.add(number)
        taken.update((kind.source, kind.name))
        prefix = chr(_FIRST_LETTER + number)
        return replace(kind, database="chacha", is_source=True, number=ADDED_NUMBERS + number, prefix=prefix)

    yield from built_in
    yield from load_points(KINDS, prepare)


# The kinds whose items are sources, by the name of the source.
ITEM_KINDS: Mapping[str, Kind] = {kind.source: kind for kind in _load_kinds()}
# Those of other distributions.
ADDED_KINDS: tuple[Kind, ...] = tuple(kind for kind in ITEM_KINDS.values() if kind.is_added)
# The kinds with a table that derives from the declaration. Conversations, messages and media have more than one.
TABLE_KINDS: tuple[Kind, ...] = (NOTE, CHARACTER, OBSERVATION, PROMPT, *ADDED_KINDS)
