"""Registers operations as tools, and the tools, resources and prompts of all sources, third-party ones included."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import defstruct

from aggregator.contract import session_context
from aggregator.libraries import LibraryName, enter, label, take_library, with_library
from auth.context import READ, LibraryAccess
from config.errors import NotFound
from config.settings import Settings
from server.operations import SUBJECTS, WITHOUT_TOOLS, operations_of
from server.operations.operation import Operation, ToolBinding
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Resource, ResourceReader, ResourceTemplate, Tool
from server.protocol.schema import input_schema
from server.services import Knowledge, Services
from server.tools.knowledge import with_caps
from server.tools.prompts import character_prompts, saved_prompts
from sessions.state import SessionStates
from sources.items import GetResponse, RetrievalOptions, uri_of
from sources.library_source import LibrarySource
from sources.source import GetArguments, Source, SourceResource, SourceTool
from sources.storage.contract import Libraries
from sources.storage.shared_part import permitted_sources

# A rendered prompt: arguments that repeat must not fill the memory.
_PROMPT_MAX_CHARS = 1_000_000

# -- resources ---------------------------------------------------------------------------------------------------------
# A source's items as MCP resources: listed, read under `source://{id}`, and completed by id or title.

# Completion checks the ids and titles of this many newest items; older items are found by a search.
_RECENT_MAX = 200
_WHOLE = GetArguments(retrieval=RetrievalOptions(mode="full"))


class SourceItems:
    """The caller's items of one source, or those of a library of someone else."""

    scope = READ

    def __init__(self, source: Source, libraries: Libraries, access: LibraryAccess | None = None) -> None:
        self.name = source.name
        self._source = source
        self._libraries = libraries
        self._access = access

    def within(self, access: LibraryAccess) -> "SourceItems | None":
        return SourceItems(self._source, self._libraries, access) if isinstance(self._source, LibrarySource) else None

    def declared(self) -> Iterator[Resource | ResourceTemplate]:
        """Yields the template of the items, and what the source declares."""
        completers = {"id": self._complete}
        yield ResourceTemplate(
            uri_template=f"{self._source.name}://{{id}}",
            name=self._source.name,
            title=self._source.title,
            description=f"An item of the user's {self._source.name}, as text.",
            mime_type=self._source.mime_type,
            source=self.name,
            reader=self._read_item,
            completers=completers,
        )
        for resource in self._source.resources:
            names = ("name", "title", "description", "mime_type")
            values: dict[str, Any] = {name: getattr(resource, name) for name in names}
            values |= {"source": self.name, "reader": self._reader(resource)}
            if "{" in resource.uri:
                yield ResourceTemplate(uri_template=resource.uri, completers=completers, **values)
            else:
                yield Resource(uri=resource.uri, **values)

    async def page(self, call: Call, offset: int, limit: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
        context = call.context if self._access is None else call.context.within(self._access)
        permitted = permitted_sources(context)
        if permitted is not None and self.name not in permitted:
            return (), False
        async with self._libraries.library(context) as library:
            page = await self._source.list_items(context, library, limit, offset)
        # A source that returns no rows is at its end, whatever total it claims.
        has_more = 0 < len(page.rows) < page.total - offset
        rows = []
        for entry in page.rows:
            name, uri = entry.title or str(entry.id), entry.uri
            if self._access is not None:
                name, uri = f"{name} ({self._access.name})", with_library(uri, self._access.handle)
            listed: dict[str, Any] = {"uri": uri, "name": name, "mimeType": self._source.mime_type}
            if entry.last_modified is not None:
                listed["annotations"] = {"lastModified": entry.last_modified}
            rows.append(listed)
        return rows, has_more

    async def _read_item(self, call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        self._require_permitted(call)
        async with self._libraries.library(call.context) as library:
            response = await self._source.get(call.context, library, variables["id"], _WHOLE)
        call.context.record_read(uri)
        text = response.content
        if response.next_cursor is not None:
            text += f"\n\n[truncated; continue with {self._source.name}_get and cursor {response.next_cursor}]"
        return [{"uri": uri, "mimeType": self._source.mime_type, "text": text}]

    def _reader(self, resource: SourceResource) -> ResourceReader:
        async def read(call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
            self._require_permitted(call)
            async with self._libraries.library(call.context) as library:
                text = await self._source.read_resource(call.context, library, resource.uri, variables)
            if variables:
                call.context.record_read(uri)
            return [{"uri": uri, "mimeType": resource.mime_type, "text": text}]

        return read

    def _require_permitted(self, call: Call) -> None:
        """Third-party code gets no library but the caller's."""
        if call.context.library is not None and not isinstance(self._source, LibrarySource):
            raise NotFound("resource", self.name)

    async def _complete(self, call: Call, value: str, arguments: Mapping[str, str]) -> Sequence[str]:
        """Returns ids of items whose id or a title word starts with the typed text, then ids of search hits."""
        word, typed = value.strip(), value.strip().casefold()
        async with self._libraries.library(call.context) as library:
            recent = await self._source.list_items(call.context, library, _RECENT_MAX, 0)
            ids = [
                str(entry.id)
                for entry in recent.rows
                if str(entry.id).casefold().startswith(typed) or f" {typed}" in f" {(entry.title or '').casefold()}"
            ]
            if typed:
                # A single word may not be typed to its end.
                request = self._source.search_input(query=f"{word}*" if word.isalnum() else word)
                page = await self._source.search(call.context, library, request)
                ids += [str(hit.id) for hit in page.hits]
        return list(dict.fromkeys(ids))


# Six tools take this argument, and clients send all listed schemas to the model on each turn, so only knowledge_get
# lists it in full.
_RETRIEVAL: Mapping[str, Any] = {
    "type": "object",
    "description": "mode, max_tokens and others; see knowledge_get.",
}


def add_sources(catalog: Catalog, libraries: Libraries, knowledge: Knowledge, settings: Settings) -> None:
    for source in knowledge.sources:
        for source_tool in source.tools:
            schema = input_schema(tool_input(source, source_tool))
            if "retrieval" in schema["properties"]:
                schema["properties"]["retrieval"] = _RETRIEVAL
            schema = with_caps(schema, settings)
            catalog.add_tool(_catalog_tool(source, source_tool, schema, libraries, knowledge.session_states))
        items = SourceItems(source, libraries)
        for declared in items.declared():
            if isinstance(declared, Resource):
                catalog.add_resource(declared)
            else:
                catalog.add_template(declared)
        catalog.add_resource_listing(items)
    catalog.add_prompt_listing(saved_prompts(libraries, _PROMPT_MAX_CHARS))
    catalog.add_prompt_listing(character_prompts(libraries, _PROMPT_MAX_CHARS))


@cache
def _with_library_argument(declared: Any) -> type[Any]:
    fields: list[Any] = [("library", LibraryName, None)]
    return defstruct(declared.__name__, fields, bases=(declared,), frozen=True, kw_only=True)


def tool_input(source: Source, tool: SourceTool) -> type[Any]:
    """The arguments of a source's tool, with that for the library if the source may read those of others. A source
    never sees it."""
    declared: Any = tool.input
    return _with_library_argument(declared) if isinstance(source, LibrarySource) else tool.input


def _named_uri(source: Source, arguments: Any) -> str | None:
    """The URI of the item that a get names by its id or its URI, for the error if it does not exist."""
    uri: str | None = getattr(arguments, "uri", None)
    item_id = getattr(arguments, getattr(source, "id_argument", ""), None)
    return uri or (None if item_id is None else uri_of(source.name, item_id))


def add_operations(catalog: Catalog, services: Services) -> None:
    """Registers the operations that are tools."""
    for operation in operations_of(*(subject for subject in SUBJECTS if subject not in WITHOUT_TOOLS)):
        if operation.tool is not None:
            catalog.add_tool(_operation_tool(operation, operation.tool, services))


def _operation_tool(operation: Operation, binding: ToolBinding, services: Services) -> Tool:
    async def run(call: Call, request: Any) -> Any:
        return await operation.handler(call.context, services, request)

    assert not isinstance(operation.response, str | tuple), "a tool returns a Struct"
    return Tool(
        name=binding.name,
        title=binding.title,
        description=binding.description,
        input=operation.input,
        output=operation.response,
        schema=with_caps(input_schema(operation.input), services.settings),
        scope=operation.scope,
        hints=binding.hints,
        source=operation.source,
        handler=run,
    )


def _catalog_tool(
    source: Source,
    source_tool: SourceTool,
    schema: Mapping[str, Any],
    libraries: Libraries,
    session_states: SessionStates,
) -> Tool:
    async def run_in_library(call: Call, arguments: Any) -> Any:
        context = await session_context(session_states, call.context)
        arguments, name = take_library(arguments)
        if name is not None:
            context = enter(context, name, _named_uri(source, arguments), source)
        async with libraries.library(context) as library:
            result = await source.call_tool(context, library, source_tool.name, arguments)
        if isinstance(result, GetResponse):
            context.record_read(result.meta.uri)
        return result if name is None else label(result, context.library)

    return Tool(
        name=source_tool.name,
        title=source_tool.title,
        description=source_tool.description,
        input=tool_input(source, source_tool),
        output=source_tool.output,
        schema=schema,
        source=source.name,
        handler=run_in_library,
    )
