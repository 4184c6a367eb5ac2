"""Registers everything the sources offer. A third-party source is treated as ours are."""

from collections.abc import Mapping
from typing import Any

from aggregator.defaults import session_context
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool
from server.protocol.schema import input_schema
from server.runtime import Knowledge
from server.tools.prompts import characters, saved_prompts
from server.tools.resources import SourceItems
from sessions.state import SessionStates
from sources.source import SourceTool
from sources.storage.contract import Libraries

# Six tools take it, and a client pays for all of them on each turn: in the list the whole of it stands in one.
_RETRIEVAL: Mapping[str, Any] = {
    "type": "object",
    "description": "mode: snippet, chunk, chunk_with_siblings, full, auto; max_tokens; more in knowledge_get.",
}


def add_knowledge(catalog: Catalog, libraries: Libraries, knowledge: Knowledge, settings: Settings) -> None:
    for source in knowledge.sources:
        for declared in source.tools:
            catalog.add_tool(_tool(declared, libraries, knowledge.session_states))
        items = SourceItems(source, libraries)
        for resource in items.fixed():
            catalog.add_resource(resource)
        for template in items.templates():
            catalog.add_template(template)
        catalog.add_resource_listing(items)
    catalog.add_prompt_listing(saved_prompts(libraries, settings.prompt_max_chars))
    catalog.add_prompt_listing(characters(libraries, settings.prompt_max_chars))


def _tool(declared: SourceTool, libraries: Libraries, session_states: SessionStates) -> Tool:
    async def run(call: Call, given: Any) -> Any:
        context = await session_context(session_states, call.context)
        async with libraries.library(context) as library:
            return await declared.run(context, library, given)

    return Tool(
        name=declared.name,
        title=declared.title,
        description=declared.description,
        input=declared.input,
        output=declared.output,
        schema=_listed_schema(declared.input),
        handler=run,
    )


def _listed_schema(declared: type[Any]) -> Mapping[str, Any]:
    schema = input_schema(declared)
    if "retrieval" in schema["properties"]:
        schema["properties"]["retrieval"] = _RETRIEVAL
    return schema
