"""Promises of "MCP Context Search and Retrieval" that no part keeps alone."""

from typing import Any

import msgspec
import pytest

from tests.server.clients import JSON_AND_EVENTS, handshake, message
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser


async def post(api: RestClient, path: str, body: Any, **headers: str) -> HttpResponse:
    return await api.request("POST", path, "ada", {**JSON_AND_EVENTS, **headers}, msgspec.json.encode(body))


async def test_a_search_over_all_sources_answers_twenty_hits_unless_told_otherwise(
    ada: LibraryUser, ben: LibraryUser
) -> None:
    for number in range(30):
        await ada.add_note(f"Voyage {number}", f"galleon {number}")
        await ben.add_note(f"Voyage {number}", f"galleon {number}")

    answer = await ada.call("knowledge_search", query="galleon", snippet_length=20)

    assert (len(answer["results"]), answer["next_offset"], answer["cut"]) == (20, 20, False)


@pytest.mark.parametrize("parameter", ["mcp-session-id", "Mcp-Session-Id", "session_id", "session"])
async def test_a_session_is_named_in_the_header_and_nowhere_else(api: RestClient, parameter: str) -> None:
    session = (await post(api, "/mcp", handshake("2025-11-25"))).header("mcp-session-id") or ""
    listing = message("tools/list", {}, 1)

    named = await post(api, "/mcp", listing, Mcp_Session_Id=session)
    elsewhere = await post(api, f"/mcp?{parameter}={session}", listing)

    assert named.status == 200
    assert elsewhere.status == 400


async def test_a_message_among_the_attachments_names_its_place_and_not_its_text(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Harbour", "Where is the galleon?", "Under sail.")

    answer = await ada.read("chats", chat, retrieval={"mode": "full"})

    first, second = answer["attachments"]
    assert (first["message_index"], first["sender"], second["sender"]) == (0, "Ana", "Guide")
    assert answer["content"][second["start"] : second["end"]] == "Guide: Under sail."
    assert "galleon" not in str(answer["attachments"])


async def test_what_is_added_to_an_answer_is_left_out_where_it_says_nothing(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    plain = await ada.call("notes_search", query="galleon")
    told = await ada.call("notes_search", query='"galleon')
    read = await ada.read("notes", note, retrieval={"mode": "full"})

    assert told["read_as"]
    assert {"read_as", "pages"}.isdisjoint(plain)
    assert "more_in_item" not in plain["results"][0]
    assert {"over_budget", "pages"}.isdisjoint(read)
