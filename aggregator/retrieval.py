"""Any item of any source, by its URI or by source and id, at the depth a caller asks for."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import unquote

from msgspec import Meta, Struct
from msgspec.structs import fields, replace

from aggregator.defaults import habits_of, session_context
from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from sessions.state import SessionStates
from sources.items import GetResponse, Loc
from sources.source import Reading, Source
from sources.storage.contract import Libraries

_PLACES = frozenset(field.name for field in fields(Loc))


class KnowledgeGet(Reading, frozen=True, kw_only=True):
    uri: Annotated[str | None, Meta(description="uri of a hit; or give source and id.")] = None
    source: Annotated[str | None, Meta(description="source of a hit.")] = None
    id: Annotated[str | int | None, Meta(description="id of a hit.")] = None
    session: Annotated[str | None, Meta(description="session of an earlier answer.")] = None


class _Address(Struct, frozen=True):
    """Which item, and the place in it that a URI may name."""

    source: Source
    identity: str | int
    loc: Mapping[str, str] | None = None


class Retriever:
    def __init__(self, libraries: Libraries, sources: Sequence[Source], session_states: SessionStates) -> None:
        self._libraries = libraries
        self._sources = {source.name: source for source in sources}
        self._session_states = session_states

    async def get(self, context: RequestContext, asked: KnowledgeGet) -> GetResponse:
        address = self._address(asked)
        context = await session_context(self._session_states, context, asked.session)
        habits_of(context)
        reading = asked if asked.loc is not None or address.loc is None else replace(asked, loc=dict(address.loc))
        async with self._libraries.library(context) as library:
            return await address.source.get(context, library, address.identity, reading)

    def _address(self, asked: KnowledgeGet) -> _Address:
        if asked.uri is None:
            if asked.source is None or asked.id is None:
                raise InvalidParams("uri: got nothing, expected the uri of a hit, or its source and its id")
            return _Address(self._source("source", asked.source), asked.id)
        address = self._parse(asked.uri)
        for name, given, meant in (
            ("source", asked.source, address.source.name),
            ("id", asked.id, address.identity),
        ):
            if given is not None and str(given) != str(meant):
                raise InvalidParams(f"{name}: got {str(given)[:60]!r}, expected {meant!r} as in uri, or no uri")
        return address

    def _source(self, argument: str, name: str) -> Source:
        source = self._sources.get(name)
        if source is None:
            raise InvalidParams(f"{argument}: got {name[:60]!r}, expected one of {', '.join(self._sources)}")
        return source

    def _parse(self, uri: str) -> _Address:
        scheme, separator, path = uri.partition("://")
        if not separator or not path:
            raise InvalidParams(f"uri: got {uri[:60]!r}, expected the uri of a hit, such as notes://6f1c")
        source = self._source("uri", scheme)
        segments = [unquote(segment) for segment in path.split("/")]
        if len(segments) == 1:
            return _Address(source, segments[0])
        for declared in source.resources:
            variables = _match(declared.uri, scheme, segments)
            if variables is not None and "id" in variables and variables.keys() - {"id"} <= _PLACES:
                return _Address(source, variables.pop("id"), variables)
        raise NotFound("item", uri[:200])


def _match(template: str, scheme: str, segments: Sequence[str]) -> dict[str, Any] | None:
    """The values of a template's variables, if it has as many segments as the address."""
    name, _, path = template.partition("://")
    parts = path.split("/")
    if name != scheme or len(parts) != len(segments):
        return None
    pairs = list(zip(parts, segments, strict=True))
    if any(part != segment for part, segment in pairs if not part.startswith("{")):
        return None
    return {part.strip("{}"): segment for part, segment in pairs if part.startswith("{")}
