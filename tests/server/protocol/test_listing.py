"""Lists of tools, resources and prompts: who sees what, and paging."""

from typing import Any

import msgspec
import pytest

from auth.context import READ, WRITE
from config.errors import InvalidParams
from tests.cases import each_case
from tests.server.protocol.dispatcher_fixture import DispatcherClient, make_dispatcher, make_principal
from tests.server.sample_catalog import SampleCatalog

LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


@pytest.fixture
def ada(samples: SampleCatalog) -> DispatcherClient:
    return DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))


@each_case("method", LISTS)
async def test_a_legacy_list_has_no_modern_fields(ada: DispatcherClient, method: str) -> None:
    assert set(await ada.legacy(method)) == {LISTS[method]}


async def test_lists_contain_only_what_the_scopes_allow(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog)
    reader, writer = (
        DispatcherClient(dispatcher, make_principal("ada", (READ,))),
        DispatcherClient(dispatcher, make_principal("ben", (READ, WRITE))),
    )

    readable = {tool["name"] for tool in (await reader.legacy("tools/list"))["tools"]}
    writable = {tool["name"] for tool in (await writer.legacy("tools/list"))["tools"]}
    assert "echo" in readable
    assert writable - readable == {"write_note"}
    assert [r["uri"] for r in (await reader.legacy("resources/list"))["resources"]] == ["test://plain", "test://broken"]
    assert [p["name"] for p in (await reader.legacy("prompts/list"))["prompts"]] == ["greet"]


async def test_a_changed_catalog_changes_the_next_list(samples: SampleCatalog, ada: DispatcherClient) -> None:
    before = (await ada.legacy("tools/list"))["tools"]
    samples.catalog.add_tool(msgspec.structs.replace(samples.catalog.tools["echo"], name="added"))

    after = (await ada.legacy("tools/list"))["tools"]

    assert after[:-1] == before
    assert after[-1]["name"] == "added"


async def test_pages_contain_every_tool_once_and_in_order(samples: SampleCatalog) -> None:
    client = DispatcherClient(make_dispatcher(samples.catalog, page_size=2), make_principal("ada"))
    names, cursor = list[str](), None

    while True:
        page = await client.legacy("tools/list", {"cursor": cursor} if cursor else {})
        assert len(page["tools"]) <= 2
        names += [tool["name"] for tool in page["tools"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break

    assert names == list(samples.catalog.tools)


async def test_no_page_follows_a_full_last_page(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog, page_size=len(samples.catalog.tools))

    page = await DispatcherClient(dispatcher, make_principal("ada")).legacy("tools/list")

    assert [tool["name"] for tool in page["tools"]] == list(samples.catalog.tools)
    assert "nextCursor" not in page


@each_case("cursor", ["", "x", "MQ==", "MTp4", "MTotMQ==", "MTo5OTk5", 7, [], {}, True, "\x00", "é"])
async def test_an_invalid_cursor_is_rejected(ada: DispatcherClient, cursor: Any) -> None:
    with pytest.raises(InvalidParams, match="cursor"):
        await ada.legacy("tools/list", {"cursor": cursor})
