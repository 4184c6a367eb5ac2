"""The registry: the five built-in sources, and those of other distributions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from config.settings import Settings
from sources.registry import load_sources
from tests.sources.source_fixture import SOURCES, open_source_fixture
from tests.sources.weather_source import WEATHER, distribution_directory, install


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with distribution_directory(tmp_path) as directory:
        yield directory


@pytest.fixture
def errors() -> Iterator[list[str]]:
    messages: list[str] = []
    handler = logger.add(lambda line: messages.append(line.record["message"]), level="ERROR")
    yield messages
    logger.remove(handler)


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
        ("raise SystemExit(3)", "broken:Source"),
        (WEATHER.replace("self.resources = [", "self.resources = [1,"), "broken:Weather"),
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
