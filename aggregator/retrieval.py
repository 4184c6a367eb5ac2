"""Reads an item of any source by URI, or by source and id."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import unquote

from msgspec import Meta, Struct
from msgspec.structs import fields, replace

from aggregator.contract import SearchDefaults, permitted_sources, search_defaults, session_context
from aggregator.libraries import LibraryName, enter, label, take_library
from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from sessions.state import SessionStates
from sources.items import GetResponse, Loc, uri_of
from sources.library_source import LibrarySource
from sources.source import GetArguments, Source
from sources.storage.contract import Libraries

_LOC_FIELDS = frozenset(field.name for field in fields(Loc))


class KnowledgeGet(GetArguments, frozen=True, kw_only=True):
    """The arguments of `knowledge_get`."""

    uri: Annotated[str | None, Meta(description="uri of a hit; or give source and id.")] = None
    source: Annotated[str | None, Meta(description="source of a hit.")] = None
    id: Annotated[str | int | None, Meta(description="id of a hit.")] = None
    session: Annotated[str | None, Meta(description="session of an earlier response.")] = None
    library: LibraryName = None


class _ItemAddress(Struct, frozen=True):
    """An item, and the place in it that a URI may name."""

    source: Source
    item_id: str | int
    loc: Mapping[str, str] | None = None


class Retriever:
    def __init__(self, libraries: Libraries, sources: Sequence[Source], session_states: SessionStates) -> None:
        self._libraries = libraries
        self._sources = {source.name: source for source in sources}
        self._session_states = session_states

    async def get(self, context: RequestContext, request: KnowledgeGet) -> GetResponse:
        return (await self.get_with_defaults(context, request))[0]

    async def get_with_defaults(
        self, context: RequestContext, request: KnowledgeGet
    ) -> tuple[GetResponse, SearchDefaults]:
        """Returns the item, and the defaults of the session and the request that applied."""
        sources = permitted_sources(self._sources, context.principal)
        if (
            request.uri is None
            and isinstance(request.id, str)
            and (request.id.partition("://")[0] in sources and "://" in request.id)
        ):
            request = replace(request, uri=request.id, id=None)
        request, name = take_library(request)
        address = _address(request, sources)
        uri = uri_of(address.source.name, address.item_id)
        context = await session_context(self._session_states, context, request.session)
        defaults = search_defaults(context)
        if address.loc is not None:
            request = request.at_part(address.loc)
        if name is not None:
            context = enter(context, name, uri, address.source)
        # REST operations enter another person's library before this. Third-party sources get the caller's only.
        if context.library is not None and not isinstance(address.source, LibrarySource):
            raise NotFound(address.source.name, str(address.item_id)[:200])
        async with self._libraries.library(context) as library:
            response = await address.source.get(context, library, address.item_id, request)
        context.record_read(uri)
        return label(response, context.library if name is not None else None), defaults


def _address(request: KnowledgeGet, sources: Mapping[str, Source]) -> _ItemAddress:
    if request.uri is None:
        if request.source is None or request.id is None:
            raise InvalidParams("uri: expected the uri of a hit, or its source and id, got nothing")
        return _ItemAddress(_source("source", request.source, sources), request.id)
    address = _parse_uri(request.uri, sources)
    for name, argument, in_uri in (
        ("source", request.source, address.source.name),
        ("id", request.id, address.item_id),
    ):
        if argument is not None and str(argument) != str(in_uri):
            raise InvalidParams(f"{name}: expected {in_uri!r}, the value in uri, got {str(argument)[:60]!r}")
    return address


def _source(argument: str, name: str, sources: Mapping[str, Source]) -> Source:
    source = sources.get(name)
    if source is None:
        raise InvalidParams(f"{argument}: expected one of {', '.join(sources)}, got {name[:60]!r}")
    return source


def _parse_uri(uri: str, sources: Mapping[str, Source]) -> _ItemAddress:
    scheme, separator, path = uri.partition("://")
    if not separator or not path:
        raise InvalidParams(f"uri: expected the uri of a hit, such as notes://6f1c, got {uri[:60]!r}")
    source = _source("uri", scheme, sources)
    segments = [unquote(segment) for segment in path.split("/")]
    if len(segments) == 1:
        return _ItemAddress(source, segments[0])
    for resource in source.resources:
        variables = _match_template(resource.uri, scheme, segments)
        if variables is not None and "id" in variables and variables.keys() - {"id"} <= _LOC_FIELDS:
            return _ItemAddress(source, variables.pop("id"), variables)
    raise NotFound("item", uri[:200])


def _match_template(template: str, scheme: str, segments: Sequence[str]) -> dict[str, Any] | None:
    """The values of a template's variables, or None if the template does not match the path segments."""
    template_scheme, _, path = template.partition("://")
    parts = path.split("/")
    if template_scheme != scheme or len(parts) != len(segments):
        return None
    pairs = list(zip(parts, segments, strict=True))
    if any(part != segment for part, segment in pairs if not part.startswith("{")):
        return None
    return {part.strip("{}"): segment for part, segment in pairs if part.startswith("{")}
