"""Registers the tools, resources and prompts of all sources, third-party sources included."""

from collections.abc import Mapping
from typing import Any

from aggregator.defaults import session_context
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool
from server.protocol.schema import input_schema
from server.runtime import Knowledge
from server.tools.caps import with_caps
from server.tools.prompts import character_prompts, saved_prompts
from server.tools.resources import SourceItems
from sessions.state import SessionStates
from sources.items import GetResponse
from sources.source import Source, SourceTool
from sources.storage.contract import Libraries

# Six tools take this argument, and clients send all listed schemas to the model on each turn, so only knowledge_get
# lists it in full.
_RETRIEVAL: Mapping[str, Any] = {
    "type": "object",
    "description": "mode, max_tokens and others; see knowledge_get.",
}


def add_sources(catalog: Catalog, libraries: Libraries, knowledge: Knowledge, settings: Settings) -> None:
    for source in knowledge.sources:
        for source_tool in source.tools:
            schema = with_caps(_listed_schema(source_tool.input), settings)
            catalog.add_tool(_catalog_tool(source, source_tool, schema, libraries, knowledge.session_states))
        items = SourceItems(source, libraries)
        for resource in items.fixed():
            catalog.add_resource(resource)
        for template in items.templates():
            catalog.add_template(template)
        catalog.add_resource_listing(items)
    catalog.add_prompt_listing(saved_prompts(libraries, settings.prompt_max_chars))
    catalog.add_prompt_listing(character_prompts(libraries, settings.prompt_max_chars))


def _catalog_tool(
    source: Source,
    source_tool: SourceTool,
    schema: Mapping[str, Any],
    libraries: Libraries,
    session_states: SessionStates,
) -> Tool:
    async def run_in_library(call: Call, arguments: Any) -> Any:
        context = await session_context(session_states, call.context)
        async with libraries.library(context) as library:
            result = await source.call_tool(context, library, source_tool.name, arguments)
        if isinstance(result, GetResponse):
            context.record_read(result.meta.uri)
        return result

    return Tool(
        name=source_tool.name,
        title=source_tool.title,
        description=source_tool.description,
        input=source_tool.input,
        output=source_tool.output,
        schema=schema,
        source=source.name,
        handler=run_in_library,
    )


def _listed_schema(input_type: type[Any]) -> dict[str, Any]:
    schema = input_schema(input_type)
    if "retrieval" in schema["properties"]:
        schema["properties"]["retrieval"] = _RETRIEVAL
    return schema
