"""A third-party source as code, and distributions that offer it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WEATHER = '''
"""A third-party source."""

from msgspec import Struct

from config.errors import NotFound
from sources.items import GetResponse, ResultItem, SearchResponse
from sources.records import ListPage
from sources.source import ItemEntry, SourceResource, SourceTool, hits_from_response, search_response

REPORTS = {"monday": "Rain in the morning.", "tuesday": "Sun all day."}


class WeatherSearch(Struct, frozen=True, kw_only=True):
    query: str
    limit: int = 10
    offset: int = 0
    snippet_length: int | None = None


class Weather:
    name = "weather"
    title = "Weather"
    mime_type = "text/plain"
    search_input = WeatherSearch

    def __init__(self, settings):
        self.tools = [
            SourceTool(
                name="weather_search",
                title="Search weather",
                description='Search the reports. Example: {"query": "rain"}',
                input=WeatherSearch,
                output=SearchResponse,
            )
        ]
        self.resources = [
            SourceResource(
                uri="weather://stations",
                name="stations",
                title="Stations",
                description="Where the weather was measured.",
                mime_type="text/plain",
            )
        ]

    def item(self, day):
        return ResultItem(id=day, source="weather", title=day, snippet=REPORTS[day], uri=f"weather://{day}", score=0.5,
                          created_at=None, last_modified=None, version=1, tags=None)

    async def search(self, context, library, args):
        items = [self.item(day) for day, text in REPORTS.items() if args.query.rstrip("*") in text.lower()]
        return hits_from_response(
            SearchResponse(results=tuple(items), has_more=False, next_offset=None, total_estimated=len(items))
        )

    def render_hit(self, hit, query, topic):
        return hit.payload

    async def get(self, context, library, item_id, args):
        if item_id not in REPORTS:
            raise NotFound("weather", item_id)
        return GetResponse(meta=self.item(item_id), content=REPORTS[item_id], mode="full", anchor="beginning",
                           tokens=10)

    async def list_items(self, context, library, limit, offset):
        days = [ItemEntry(id=day, uri=f"weather://{day}", title=day, last_modified=None) for day in REPORTS]
        return ListPage(tuple(days[offset:offset + limit]), len(days))

    async def call_tool(self, context, library, name, args):
        return search_response(self, await self.search(context, library, args))

    async def read_resource(self, context, library, uri, variables):
        return f"for {context.principal.user_name}"
'''


@contextmanager
def distribution_directory(parent: Path) -> Iterator[Path]:
    """A directory on `sys.path` for distributions; modules imported from it are unloaded afterwards."""
    directory = parent / "site"
    directory.mkdir()
    sys.path.insert(0, str(directory))
    loaded_before = set(sys.modules)
    try:
        yield directory
    finally:
        sys.path.remove(str(directory))
        for name in set(sys.modules) - loaded_before:
            del sys.modules[name]


def install(site: Path, module: str, code: str, target: str) -> None:
    """Writes a distribution as an installer would: a module, and metadata with its entry point."""
    (site / f"{module}.py").write_text(code)
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[florilegium.sources]\n{module} = {target}\n")
