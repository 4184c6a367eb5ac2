"""Registers everything the sources offer. A third-party source is treated as ours are."""

from collections.abc import Sequence
from typing import Any

from config.settings import Settings
from server.knowledge.prompts import characters, saved_prompts
from server.knowledge.resources import SourceItems
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool
from sources.source import Source, SourceTool
from sources.storage.contract import Libraries


def add_knowledge(catalog: Catalog, libraries: Libraries, sources: Sequence[Source], settings: Settings) -> None:
    for source in sources:
        for declared in source.tools:
            catalog.add_tool(_tool(declared, libraries))
        items = SourceItems(source, libraries)
        for resource in items.fixed():
            catalog.add_resource(resource)
        for template in items.templates():
            catalog.add_template(template)
        catalog.add_resource_listing(items)
    catalog.add_prompt_listing(saved_prompts(libraries, settings.prompt_max_chars))
    catalog.add_prompt_listing(characters(libraries, settings.prompt_max_chars))


def _tool(declared: SourceTool, libraries: Libraries) -> Tool:
    async def run(call: Call, given: Any) -> Any:
        async with libraries.library(call.context) as library:
            return await declared.run(call.context, library, given)

    return Tool(
        name=declared.name,
        title=declared.title,
        description=declared.description,
        input=declared.input,
        output=declared.output,
        run=run,
    )
