"""Helpers to test an extension without a server: a library in a temporary folder, and the tools of a source in it.

    async def test_a_recipe_is_found(tmp_path):
        async with open_test_library(tmp_path) as library:
            await library.items("recipes").create(ItemDraft(values={"title": "Soup", "steps": "Chop the leeks."}))
            response = await library.call(Recipes, "recipes_search", query="leeks")
            assert response.results[0].title == "Soup"

Meanings are compared if the model is installed; `embed` waits until they can be. With `storage_url`, the library is in
that PostgreSQL database.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from auth.context import RequestContext
from config.settings import Settings
from server.cli.local_library import open_local
from sources.source import Source
from sources.storage.collections.collection import ItemCollection
from sources.storage.contract import Libraries, Library


class TestLibrary(Struct, frozen=True):
    """The library of one user."""

    __test__ = False  # pytest would take it for a class of tests

    library: Library
    context: RequestContext
    settings: Settings
    libraries: Libraries

    def items(self, source: str) -> ItemCollection[Any, Any, Any]:
        return self.library.collection(source)

    async def call(self, create: Callable[[Settings], Source], name: str, **arguments: Any) -> Any:
        """Calls a tool of a source, and returns what it returns."""
        source = create(self.settings)
        [tool] = [tool for tool in source.tools if tool.name == name]
        return await source.call_tool(self.context, self.library, name, msgspec.convert(arguments, tool.input))

    async def embed(self) -> None:
        await self.libraries.embed(self.context.user_id)


@asynccontextmanager
async def open_test_library(folder: Path, **settings: Any) -> AsyncIterator[TestLibrary]:
    """Opens a new library in a folder, with other settings if some are given."""
    changed = Settings(**{"data_dir": str(folder), **settings})
    async with open_local(changed, None, creates=True) as local, local.libraries.library(local.context) as library:
        yield TestLibrary(library, local.context, changed, local.libraries)


__all__ = ["TestLibrary", "open_test_library"]
