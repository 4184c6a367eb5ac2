"""What the sources that keep their items in the caller's library have in common: how their search and get become tools.

Each says what it is in words and Structs, and how its items are found and read.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from auth.context import RequestContext
from config.settings import Settings
from sources.items import GetResponse, SearchResponse
from sources.source import Matches, Reading, SourceResource, SourceTool
from sources.storage.contract import Library


class Wording(Struct, frozen=True):
    """A tool in words."""

    title: str
    description: str


class LibrarySource(ABC):
    """`names_item` is the argument of its get that says which item."""

    name: ClassVar[str]
    title: ClassVar[str]
    mime_type: ClassVar[str]
    search_input: ClassVar[type[Any]]
    get_input: ClassVar[type[Any]]
    names_item: ClassVar[str]
    searching: ClassVar[Wording]
    reading: ClassVar[Wording]

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def resources(self) -> Sequence[SourceResource]:
        return ()

    @property
    def tools(self) -> Sequence[SourceTool]:
        return (
            SourceTool(
                name=f"{self.name}_search",
                title=self.searching.title,
                description=self.searching.description,
                input=self.search_input,
                output=SearchResponse,
                run=self._run_search,
            ),
            SourceTool(
                name=f"{self.name}_get",
                title=self.reading.title,
                description=self.reading.description,
                input=self.get_input,
                output=GetResponse,
                run=self._run_get,
            ),
        )

    @abstractmethod
    async def search(self, context: RequestContext, library: Library, asked: Any) -> Matches: ...

    @abstractmethod
    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse: ...

    async def _run_search(self, context: RequestContext, library: Library, asked: Any) -> SearchResponse:
        return (await self.search(context, library, asked)).response()

    async def _run_get(self, context: RequestContext, library: Library, asked: Any) -> GetResponse:
        return await self.get(context, library, getattr(asked, self.names_item), asked)
