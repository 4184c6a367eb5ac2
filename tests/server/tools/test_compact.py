"""The compact shape `{id, title, text, url, metadata}` of the knowledge tools."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from config.settings import Settings
from server.tools.research import Permalinks
from tests.cases import each_case
from tests.server.clients import text_of
from tests.server.rest.rest_client import open_rest_client
from tests.sources.source_fixture import SOURCES, LibraryUser

PUBLIC_URL = "https://kb.example.com"
FIELDS = ["id", "title", "text", "url", "metadata"]
LONG = "The galleon left the harbour before dawn, and the harbour master wrote it down in his ledger. "


@pytest.fixture
async def readers(tmp_path: Path) -> AsyncIterator[list[LibraryUser]]:
    """Two users and the knowledge tools of a server with a public URL."""
    async with open_rest_client(tmp_path, public_url=PUBLIC_URL) as api:
        yield [await api.library_user("ada"), await api.library_user("ben")]


@pytest.fixture
def ada(readers: list[LibraryUser]) -> LibraryUser:
    return readers[0]


@pytest.fixture
def ben(readers: list[LibraryUser]) -> LibraryUser:
    return readers[1]


async def compact(reader: LibraryUser, tool: str, **arguments: Any) -> Any:
    return await reader.call(tool, **arguments, shape="compact")


@each_case("source", SOURCES)
async def test_a_hit_is_the_same_in_both_shapes(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "A galleon.")
    canonical = (await ada.call("knowledge_search", query="galleon", sources=[source]))["results"][0]

    (hit, *_) = (await compact(ada, "knowledge_search", query="galleon", sources=[source]))["results"]

    assert list(hit) == FIELDS
    assert (hit["id"], hit["title"], hit["text"]) == (canonical["uri"], canonical["title"], canonical["snippet"])
    address, fragment = hit["url"].split("#")
    assert address.partition("?")[0] == f"{PUBLIC_URL}/items/{canonical['uri'].replace('://', '/')}"
    assert fragment == "passage"
    assert Permalinks(PUBLIC_URL).uri_of(hit["url"]) == canonical["uri"]
    fields = ("source", "score", "last_modified", "loc", "cost_tokens")
    assert {name: hit["metadata"].get(name) for name in fields} == {name: canonical.get(name) for name in fields}
    assert None not in hit["metadata"].values()
    assert (await compact(ben, "knowledge_search", query="galleon", sources=[source]))["results"] == []


async def test_page_fields_are_the_same_in_both_shapes(ada: LibraryUser) -> None:
    for number in range(5):
        await ada.add_note(f"Voyage {number}", f"Galleon number {number}.")
    first = await compact(ada, "knowledge_search", query="galleon", limit=2)

    second = await compact(ada, "knowledge_search", query="galleon", session=first["session"])

    assert (first["has_more"], first["next_offset"], first["total_estimated"]) == (True, 2, 5)
    assert (len(second["results"]), second["suppressed"]) == (3, 2)


async def test_compact_page_has_passages_within_the_default_size(ada: LibraryUser) -> None:
    for number in range(40):
        await ada.add_note(f"Ledger of voyage number {number}", f"{number}: {LONG * 5}", ["ships", "harbour"])

    arguments = {"query": "galleon harbour", "shape": "compact"}
    result = await ada.request("tools/call", name="knowledge_search", arguments=arguments)

    assert 5 <= len(result["structuredContent"]["results"]) <= 8
    assert all(len(hit["text"]) > 250 for hit in result["structuredContent"]["results"])
    assert len(text_of(result).encode()) <= Settings().fixed.search_response_default_bytes


@each_case("source", SOURCES)
async def test_an_item_is_read_in_the_compact_shape(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", "A galleon.")
    asked: dict[str, Any] = {"uri": f"{source}://{identity}", "retrieval": {"mode": "full"}}
    canonical = await ada.call("knowledge_get", **asked)

    item = await compact(ada, "knowledge_get", **asked)

    assert list(item) == FIELDS
    assert (item["id"], item["title"], item["text"]) == (asked["uri"], "Voyage", canonical["content"])
    assert item["url"] == f"{PUBLIC_URL}/items/{source}/{identity}"
    assert {name: item["metadata"][name] for name in ("mode", "anchor", "tokens", "truncated")} == {
        name: canonical[name] for name in ("mode", "anchor", "tokens", "truncated")
    }
    assert "not found" in await ben.call_error("knowledge_get", **asked, shape="compact")


async def test_a_truncated_item_has_a_cursor_in_its_metadata(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", LONG * 40)
    asked = {"uri": f"notes://{note}", "retrieval": {"mode": "full", "max_tokens": 400}}

    first = await compact(ada, "knowledge_get", **asked)
    second = await compact(ada, "knowledge_get", **asked, cursor=first["metadata"]["next_cursor"])

    assert first["metadata"]["truncated"]
    assert (LONG * 40).startswith(first["text"] + second["text"])


async def test_the_original_url_is_in_the_metadata(ada: LibraryUser) -> None:
    media = await ada.add_media("Film", "A galleon film.", url="https://video.example/7")

    (hit,) = (await compact(ada, "knowledge_search", query="galleon"))["results"]

    assert hit["url"] == f"{PUBLIC_URL}/items/media/{media}?chunk_index=0#passage"
    assert hit["metadata"]["source_url"] == "https://video.example/7"


async def test_a_missing_title_falls_back_to_the_text_and_then_the_uri(
    ada: LibraryUser,
) -> None:
    short, long, empty = await ada.add_note("", "A galleon."), await ada.add_note("", LONG), await ada.add_note("", "")

    titles = [(await compact(ada, "knowledge_get", uri=f"notes://{one}"))["title"] for one in (short, long, empty)]

    assert titles == ["A galleon.", LONG[:79].rstrip() + "…", f"notes://{empty}"]


async def test_both_shapes_match_the_listed_output_schema(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")
    listed = {tool["name"]: tool.get("outputSchema") for tool in (await ada.request("tools/list"))["tools"]}

    for shape in ("compact", "canonical"):
        found = await ada.call("knowledge_search", query="galleon", shape=shape)
        read = await ada.call("knowledge_get", uri=f"notes://{note}", shape=shape)
        jsonschema_rs.validate(listed["knowledge_search"], found)
        jsonschema_rs.validate(listed["knowledge_get"], read)


async def test_a_config_selects_the_shape_of_calls_that_do_not(ada: LibraryUser, ben: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")
    by_default = ada.with_config(shape="compact")

    found = await by_default.call("knowledge_search", query="galleon")
    read = await by_default.call("knowledge_get", uri=f"notes://{note}")
    canonical = await by_default.call("knowledge_search", query="galleon", shape="canonical")

    assert [list(item) for item in (*found["results"], read)] == [FIELDS, FIELDS]
    assert "uri" in canonical["results"][0]
    assert (await ben.with_config(shape="compact").call("knowledge_search", query="galleon"))["results"] == []


async def test_an_unknown_shape_is_rejected(ada: LibraryUser) -> None:
    refusal = await ada.call_error("knowledge_search", query="galleon", shape="small")

    assert refusal.endswith("expected one of canonical, compact, got 'small'")
