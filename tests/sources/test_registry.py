"""The registry: the five built-in sources, and those of other distributions."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from config.settings import Settings
from sources.registry import load_sources
from tests.sources.source_fixture import SOURCES, open_source_fixture

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


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A directory on `sys.path` for distributions; modules imported from it are unloaded afterwards."""
    directory = tmp_path / "site"
    directory.mkdir()
    sys.path.insert(0, str(directory))
    loaded_before = set(sys.modules)
    yield directory
    sys.path.remove(str(directory))
    for name in set(sys.modules) - loaded_before:
        del sys.modules[name]


@pytest.fixture
def errors() -> Iterator[list[str]]:
    messages: list[str] = []
    handler = logger.add(lambda line: messages.append(line.record["message"]), level="ERROR")
    yield messages
    logger.remove(handler)


def install(site: Path, module: str, code: str, target: str) -> None:
    """Writes a distribution as an installer would: a module, and metadata with its entry point."""
    (site / f"{module}.py").write_text(code)
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[florilegium.sources]\n{module} = {target}\n")


def test_built_in_sources_come_first_and_in_order() -> None:
    assert tuple(source.name for source in load_sources(Settings())) == SOURCES


async def test_third_party_source_provides_tools_resources_and_completion(site: Path, tmp_path: Path) -> None:
    install(site, "weather_for_florilegium", WEATHER, "weather_for_florilegium:Weather")

    async with open_source_fixture(tmp_path / "data") as fixture:
        tools = [tool["name"] for tool in (await fixture.ada.request("tools/list"))["tools"]]
        (hit,) = await fixture.ada.search("weather_search", "rain")
        listed = [entry["uri"] for entry in (await fixture.ada.request("resources/list"))["resources"]]
        (report,) = (await fixture.ada.request("resources/read", uri="weather://tuesday"))["contents"]
        texts = [
            (await user.request("resources/read", uri="weather://stations"))["contents"]
            for user in (fixture.ada, fixture.ben)
        ]
        completed = await fixture.ada.request(
            "completion/complete",
            ref={"type": "ref/resource", "uri": "weather://{id}"},
            argument={"name": "id", "value": "mon"},
        )

    assert tools[-1] == "weather_search"
    assert hit["id"] == "monday"
    assert listed == ["media://types", "weather://stations", "weather://monday", "weather://tuesday"]
    assert report["text"] == "Sun all day."
    assert [contents[0]["text"] for contents in texts] == ["for ada", "for ben"]
    assert completed["completion"]["values"] == ["monday"]


@pytest.mark.parametrize(
    ("code", "target"),
    [
        ("raise RuntimeError('broken at import')", "broken:Source"),
        ("def Source(settings):\n    raise KeyError('broken when built')", "broken:Source"),
        ("x = 1", "broken:Source"),
        ("x = 1", "no_such_module:Source"),
        ("class Strange(Exception): pass\nraise Strange()", "broken:Source"),
        ("class Source:\n    name = 'half'\n    def __init__(self, settings): pass", "broken:Source"),
        (WEATHER.replace('name = "weather"', 'name = "Bad Name"'), "broken:Weather"),
        (WEATHER.replace('name="weather_search"', 'name="notes_search"'), "broken:Weather"),
        (WEATHER.replace("Search the reports.", "Search. " * 200), "broken:Weather"),
        ("def broken(:", "broken:Source"),
    ],
)
def test_broken_source_is_logged_and_skipped(site: Path, errors: list[str], code: str, target: str) -> None:
    install(site, "broken", code, target)

    names = tuple(source.name for source in load_sources(Settings()))

    assert names == SOURCES
    assert len(errors) == 1
    assert errors[0].startswith(f"skipped the source of {target}: ")


def test_second_source_with_the_same_name_is_skipped(site: Path, errors: list[str]) -> None:
    code = WEATHER.replace('name = "weather"', 'name = "notes"').replace("weather_search", "notes_weather")
    install(site, "second_notes", code, "second_notes:Weather")

    sources: dict[str, Any] = {source.name: source for source in load_sources(Settings())}

    assert type(sources["notes"]).__name__ == "NotesSource"
    assert "the name is taken" in errors[0]
