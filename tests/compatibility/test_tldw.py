"""Requirements of tldw that involve several parts of the server."""

from typing import Any

import msgspec
import pytest

from tests.server.clients import JSON_AND_EVENTS, handshake, message
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser


async def post(api: RestClient, path: str, body: Any, **headers: str) -> HttpResponse:
    return await api.request("POST", path, "ada", {**JSON_AND_EVENTS, **headers}, msgspec.json.encode(body))


async def test_knowledge_search_returns_twenty_hits_by_default(ada: LibraryUser, ben: LibraryUser) -> None:
    for number in range(30):
        await ada.add_note(f"Voyage {number}", f"galleon {number}")
        await ben.add_note(f"Voyage {number}", f"galleon {number}")

    response = await ada.call("knowledge_search", query="galleon", snippet_length=20)

    assert (len(response["results"]), response["next_offset"], response["cut"]) == (20, 20, False)


@pytest.mark.parametrize("parameter", ["mcp-session-id", "Mcp-Session-Id", "session_id", "session"])
async def test_session_id_is_accepted_only_in_the_header(api: RestClient, parameter: str) -> None:
    session = (await post(api, "/mcp", handshake("2025-11-25"))).header("mcp-session-id") or ""
    listing = message("tools/list", {}, 1)

    in_header = await post(api, "/mcp", listing, Mcp_Session_Id=session)
    in_query = await post(api, f"/mcp?{parameter}={session}", listing)

    assert in_header.status == 200
    assert in_query.status == 400


async def test_attached_message_has_its_position_but_not_its_text(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Harbour", "Where is the galleon?", "Under sail.")

    response = await ada.read("chats", chat, retrieval={"mode": "full"})

    first, second = response["attachments"]
    assert (first["message_index"], first["sender"], second["sender"]) == (0, "Ana", "Guide")
    assert response["content"][second["start"] : second["end"]] == "Guide: Under sail."
    assert "galleon" not in str(response["attachments"])


async def test_added_fields_are_omitted_when_empty(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    plain = await ada.call("notes_search", query="galleon")
    reinterpreted = await ada.call("notes_search", query='"galleon')
    item = await ada.read("notes", note, retrieval={"mode": "full"})

    assert reinterpreted["read_as"]
    assert {"read_as", "pages"}.isdisjoint(plain)
    assert "more_in_item" not in plain["results"][0]
    assert {"over_budget", "pages"}.isdisjoint(item)
