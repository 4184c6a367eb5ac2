"""The source tools as a client lists them."""

import jsonschema_rs
import pytest

from tests.cases import each_case
from tests.sources.source_fixture import SOURCES, LibraryUser, SourceFixture

TOOLS = [
    "notes_search",
    "notes_get",
    "media_search",
    "media_get",
    "media_transcript",
    "chats_search",
    "chats_get",
    "characters_search",
    "characters_get",
    "prompts_search",
    "prompts_get",
]


async def test_the_tools_of_the_tldw_design_are_listed_with_underscores(fixture: SourceFixture) -> None:
    assert [tool["name"] for tool in (await fixture.ada.request("tools/list"))["tools"]] == TOOLS


@pytest.mark.parametrize("name", ["notes.search", "notes_search"])
async def test_a_tool_can_be_called_by_its_dotted_name(ada: LibraryUser, name: str) -> None:
    await ada.add_note("Voyage", "A galleon.")

    assert len(await ada.search(name, "galleon")) == 1


async def test_every_source_tool_is_read_only_and_closed_world(fixture: SourceFixture) -> None:
    for tool in (await fixture.ada.request("tools/list"))["tools"]:
        assert tool["annotations"] == {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        }


@each_case("source", SOURCES)
async def test_responses_match_the_listed_output_schema(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", "A galleon. " * 300)
    schemas = {tool["name"]: tool.get("outputSchema") for tool in (await ada.request("tools/list"))["tools"]}

    jsonschema_rs.validate(schemas[f"{source}_search"], await ada.call(f"{source}_search", query="galleon"))
    jsonschema_rs.validate(schemas[f"{source}_get"], await ada.read(source, identity))


async def test_no_tool_names_a_user(fixture: SourceFixture) -> None:
    """The credential determines the library; no argument does."""
    for tool in fixture.catalog.tools.values():
        assert not {"user", "user_id", "owner", "path", "db"} & set(tool.as_listed()["inputSchema"]["properties"])
