"""The public API for plugins: what it exports, which declarations are rejected, and the entry points of APIs and
storage engines. `test_bookmarks.py` has a whole plugin."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from config.settings import Settings, check
from florilegium.kinds import Field, Item, Kind
from florilegium.testing import open_test_library
from server.stores import open_libraries
from sources.drafts import NoteDraft
from sources.kinds import declared_fields, validate_kind
from sources.library_source import NotesSource
from tests.cases import each_case
from tests.live import make_settings
from tests.server.cli.program import Program
from tests.server.rest.rest_client import open_rest_client
from tests.servers.storage import WORDS_ONLY
from tests.sources.weather_source import distribution_directory, install

ROUTES = """
from starlette.responses import PlainTextResponse
from starlette.routing import Route

def make_routes(runtime):
    async def hello(request):
        return PlainTextResponse("hello from another API")
    return [Route("/legacy/hello", hello)]
"""
ENGINE = """
from sources.storage.sqlite import SqliteLibraries

class Recorded(SqliteLibraries):
    pass
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with distribution_directory(tmp_path) as directory:
        yield directory


def install_in(site: Path, group: str, name: str, code: str, target: str) -> None:
    install(site, name, code, f"{name}:{target}")
    entries = site / f"{name}-1.0.dist-info" / "entry_points.txt"
    entries.write_text(f"[{group}]\n{name} = {name}:{target}\n")


@each_case("module", ["errors", "importers", "kinds", "sources", "testing"])
def test_every_exported_name_exists_and_is_documented(module: str) -> None:
    loaded = import_module(f"florilegium.{module}")
    assert loaded.__doc__
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []


class Recipe(Item, frozen=True, kw_only=True):
    title: Annotated[str, Field("Title", is_required=True)]
    steps: Annotated[str, Field("Steps", is_long=True, is_searched=True)] = ""
    serves: Annotated[int | None, Field("Serves")] = None
    course: Annotated[Literal["starter", "dessert"], Field("Course")] = "starter"
    is_tried: Annotated[bool, Field("Tried")] = False
    tools: Annotated[tuple[str, ...], Field("Tools")] = ()
    nutrition: Mapping[str, Any] = {}


class WithoutDefault(Item, frozen=True, kw_only=True):
    title: Annotated[str, Field("Title")]


class Reserved(Item, frozen=True, kw_only=True):
    title: Annotated[str, Field("Title", is_required=True)]
    order: Annotated[str, Field("Order")] = ""


class Untyped(Item, frozen=True, kw_only=True):
    title: Annotated[str, Field("Title", is_required=True)]
    weight: Annotated[float, Field("Weight")] = 0.0


RECIPE = Kind(name="recipe", source="recipes", record=Recipe, content="steps")


def test_the_types_of_fields_say_what_they_hold() -> None:
    validate_kind(RECIPE)
    shapes = {field.name: field.shape for field in declared_fields(Recipe)}
    assert shapes == {
        "title": "line",
        "steps": "text",
        "serves": "number",
        "course": "choice",
        "is_tried": "flag",
        "tools": "list",
        "nutrition": "object",
    }


@each_case(
    ("kind", "problem"),
    [
        (Kind(name="recipe", source="Recipes", record=Recipe), "name of a kind"),
        (Kind(name="recipe", source="recipes", record=Recipe, title="name"), "expected a declared field"),
        (Kind(name="recipe", source="recipes", record=Recipe, content="serves"), "expected a text"),
        (Kind(name="recipe", source="recipes", record=Recipe, layout="columns"), "layout"),
        (Kind(name="recipe", source="recipes", record=WithoutDefault), "needs a default"),
        (Kind(name="recipe", source="recipes", record=Reserved), "'order' cannot be the name of a column"),
        (Kind(name="recipe", source="recipes", record=Untyped), "weight: expected a text, a number"),
        ("recipes", "expected a Kind"),
    ],
)
def test_declarations_that_cannot_work_are_rejected(kind: object, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        validate_kind(kind)


async def test_a_plugin_adds_the_api_of_another_program(site: Path, tmp_path: Path) -> None:
    install_in(site, "florilegium.compatibility", "legacy_api", ROUTES, "make_routes")
    async with open_rest_client(tmp_path / "data") as client:
        response = await client.get("/legacy/hello", None)
    assert (response.status, response.body) == (200, b"hello from another API")


async def test_a_plugin_adds_a_storage_engine(site: Path, tmp_path: Path) -> None:
    install_in(site, "florilegium.storage", "recorded", ENGINE, "Recorded")
    settings = make_settings(tmp_path / "data", storage_url="recorded://somewhere")
    async with open_rest_client(tmp_path / "data", storage_url="recorded://somewhere") as client:
        assert type(client.server.runtime.libraries).__name__ == "Recorded"
    assert type(open_libraries(settings, client.server.runtime.data_root)).__name__ == "Recorded"


def test_an_unknown_scheme_of_the_storage_url_is_rejected() -> None:
    with pytest.raises(Exception, match="storage_url"):
        check(Settings(storage_url="nowhere://host/database"))


async def test_the_testing_helper_calls_the_tools_of_a_source(tmp_path: Path) -> None:
    async with open_test_library(tmp_path, **WORDS_ONLY) as library:
        await library.items("notes").create(NoteDraft(title="Tea", content="Steep for three minutes."))
        response = await library.call(NotesSource, "notes_search", query="steep")
    assert [hit.title for hit in response.results] == ["Tea"]


def test_the_sql_of_a_library_is_printed_for_both_engines(tmp_path: Path) -> None:
    program = Program(tmp_path)
    assert "CREATE TABLE prompts (\n    id INTEGER PRIMARY KEY AUTOINCREMENT," in program.expect("schema", "prompts")
    printed = program.expect("schema", "prompts", "--engine", "postgres")
    assert 'CREATE TABLE florilegium_library.prompts (tenant_id TEXT COLLATE "C" NOT NULL, id BIGINT' in printed
    assert "CREATE TABLE messages" in program.expect("schema")
    assert "expected one of notes" in program.run("schema", "nothing").stderr
