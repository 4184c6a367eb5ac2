"""The sources this server can search, in the order they are listed: our five, then those that other installed
distributions offer under the entry point group `florilegium.sources`.

An entry point names a callable that takes the settings and returns a `Source`. A broken one is logged and left out:
somebody else's mistake must not keep a library closed.
"""

import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

import msgspec
from loguru import logger

from config.settings import Settings
from sources.characters import CharactersSource
from sources.chats import ChatsSource
from sources.media import MediaSource
from sources.notes import NotesSource
from sources.prompts import PromptsSource
from sources.source import Source

ENTRY_POINTS = "florilegium.sources"

# RFC 3986 section 3.1, less what cannot stand in a tool's name.
_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")
# What every known client takes whole.
_DESCRIPTION_MAX_CHARS = 1000

SOURCES: tuple[Callable[[Settings], Source], ...] = (
    NotesSource,
    MediaSource,
    ChatsSource,
    CharactersSource,
    PromptsSource,
)


def load_sources(settings: Settings) -> tuple[Source, ...]:
    """All sources, built. A name is given once: the first to claim it has it."""
    sources = {source.name: source for source in (make(settings) for make in SOURCES)}
    for point in entry_points(group=ENTRY_POINTS):
        source = _foreign(point, settings)
        if source is not None and sources.setdefault(source.name, source) is not source:
            logger.error("source {} of {} is left out: the name is taken", source.name, point.value)
    return tuple(sources.values())


def _foreign(point: EntryPoint, settings: Settings) -> Source | None:
    """The source of another distribution, if it can be had. Its code may raise anything while it loads."""
    try:
        source: Source = point.load()(settings)
        _check(source)
    except Exception as error:
        logger.opt(exception=error).error("source of {} is left out: {}", point.value, error)
        return None
    return source


def _check(source: Source) -> None:
    """Asks for what the server will ask for, here, where a failure costs one source and not the server."""
    missing = [
        name
        for name in ("title", "mime_type", "search_input", "search", "get", "entries", "resources")
        if not hasattr(source, name)
    ]
    if missing:
        raise TypeError(f"{source!r} has no {missing[0]}")
    if not _NAME.fullmatch(source.name):
        raise ValueError(f"source name {source.name!r}: expected {_NAME.pattern}, as it is a URI's scheme")
    for tool in source.tools:
        if not re.fullmatch(rf"{source.name}_[a-z0-9_]{{1,24}}", tool.name):
            raise ValueError(f"tool name {tool.name!r}: expected {source.name}_ and lower-case letters")
        if len(tool.description) > _DESCRIPTION_MAX_CHARS:
            raise ValueError(f"description of {tool.name}: expected {_DESCRIPTION_MAX_CHARS} characters at most")
        msgspec.json.schema_components([tool.input, tool.output])
