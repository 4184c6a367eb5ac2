"""Loads the sources, in the order in which they are listed: the five built-in ones, then those of other distributions.

A distribution offers a source through an entry point in the group `florilegium.sources` that names a callable taking
the settings and returning a `Source`. A source that cannot be loaded is logged and skipped, so that it does not keep
the server from starting.
"""

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec
from loguru import logger

from config.errors import ConfigurationError
from config.settings import Settings
from sources.chats import ChatsSource
from sources.installed import SOURCES as ADDED_SOURCES
from sources.installed import load_points
from sources.isolated_source import IsolatedSource
from sources.kinds import SOURCE_NAME
from sources.library_source import CharactersSource, NotesSource, PromptsSource
from sources.media import MediaSource
from sources.source import Source, SourceResource

# Longer descriptions are truncated by some clients.
_DESCRIPTION_MAX_CHARS = 1000
_MEMBERS = (
    "title",
    "mime_type",
    "search_input",
    "search",
    "render_hit",
    "get",
    "list_items",
    "call_tool",
    "resources",
    "read_resource",
)

SOURCES: Mapping[str, Callable[[Settings], Source]] = {
    NotesSource.name: NotesSource,
    MediaSource.name: MediaSource,
    ChatsSource.name: ChatsSource,
    CharactersSource.name: CharactersSource,
    PromptsSource.name: PromptsSource,
}


def load_sources(settings: Settings) -> tuple[Source, ...]:
    """Constructs the sources that are not switched off. If two have the same name, the first one wins."""
    sources = {name: create(settings.of_source(name)) for name, create in SOURCES.items()}

    def create_added(create: Callable[[Settings], Source]) -> Source:
        source = create(settings)
        _validate(source)
        return IsolatedSource(source, settings)

    for source in load_points(ADDED_SOURCES, create_added):
        if sources.setdefault(source.name, source) is not source:
            logger.error("skipped a source of another distribution, {}: the name is taken", source.name)
    _require_known("sources_off", settings.sources_off, sources)
    _require_known("source_limits", [entry.partition(".")[0] for entry in settings.source_limits], sources)
    return tuple(source for name, source in sources.items() if name not in settings.sources_off)


def _require_known(setting: str, names: Iterable[str], sources: Mapping[str, Source]) -> None:
    unknown = next((name for name in names if name not in sources), None)
    if unknown is not None:
        raise ConfigurationError(f"{setting}: expected one of {', '.join(sources)}, got {unknown!r}")


def _validate(source: Source) -> None:
    """Accesses everything that the server will need, so that a defect disables this source and not the server."""
    missing = [name for name in _MEMBERS if not hasattr(source, name)]
    if missing:
        raise TypeError(f"{source!r} has no {missing[0]}")
    if not SOURCE_NAME.fullmatch(source.name):
        raise ValueError(f"source name: expected {SOURCE_NAME.pattern}, as it is a URI scheme, got {source.name!r}")
    for tool in source.tools:
        if not re.fullmatch(rf"{source.name}_[a-z0-9_]{{1,24}}", tool.name):
            raise ValueError(f"tool name: expected {source.name}_ and lower-case letters, got {tool.name!r}")
        if len(tool.description) > _DESCRIPTION_MAX_CHARS:
            raise ValueError(f"description of {tool.name}: expected at most {_DESCRIPTION_MAX_CHARS} characters")
        msgspec.json.schema_components([tool.input, tool.output])
    for resource in source.resources:
        msgspec.convert(msgspec.to_builtins(resource), SourceResource)
