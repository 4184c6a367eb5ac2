"""Promises of AgentKit's conversations API: the requests of its frontend, its database, and what it plans."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.cases import each_case
from tests.live import NO_RATE_LIMITS
from tests.server.cli.program import Program
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.importers.test_agentkit import database
from tests.sources.source_fixture import LibraryUser

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FRONTEND = "https://chat.example.com"


async def chat(api: RestClient, message: str, **more: str) -> Any:
    body = urlencode({"message": message, "model": "any", "history": "[]", **more}).encode()
    response = await api.request("POST", "/chat", "ada", FORM, body)
    assert response.status == 200, response.body
    return response.json()


async def test_requests_of_the_frontend_return_what_it_reads(api: RestClient) -> None:
    conversation_id = (await chat(api, "Tell me about Python", session_id="s-1", namespace="work"))["conversation_id"]

    (row,) = (await api.get("/conversations?namespace=work")).json()["conversations"]
    loaded = (await api.get(f"/conversations/{row['id']}")).json()
    found = (await api.get("/conversations?search=python")).json()["conversations"]

    assert (row["id"], row["title"], row["message_count"]) == (conversation_id, "Tell me about Python", 2)
    for message in loaded["messages"]:
        assert {"id", "content", "role", "timestamp", "model", "tool_used"} <= set(message)
    assert [message["role"] for message in loaded["messages"]] == ["user", "assistant"]
    assert [one["id"] for one in found] == [conversation_id]


@each_case("export_format", ["json", "txt", "md"])
async def test_frontend_can_download_each_export_format(api: RestClient, export_format: str) -> None:
    conversation_id = (await chat(api, "Tell me about Python"))["conversation_id"]
    path = f"/conversations/{conversation_id}/export?format={export_format}"

    export = (await api.request("POST", path, "ada")).json()

    if export_format == "json":
        assert (export["id"], len(export["messages"])) == (conversation_id, 2)
    else:
        assert export["format"] == export_format
        assert "Tell me about Python" in export["content"]


async def test_frontend_of_another_origin_is_allowed_by_a_setting(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, allowed_origins=(FRONTEND,), **NO_RATE_LIMITS) as api:
        allowed = await api.get("/conversations", Origin=FRONTEND)
        other = await api.get("/conversations", Origin="https://evil.example.com")

    assert (allowed.status, allowed.header("access-control-allow-origin")) == (200, FRONTEND)
    assert other.status == 403


async def test_pages_of_twenty_conversations_follow_each_other(api: RestClient) -> None:
    for number in range(30):
        await chat(api, f"Question {number}", session_id=f"s-{number}")

    pages = [(await api.get(f"/conversations?limit=20&offset={offset}")).json() for offset in (0, 20)]

    ids = [row["id"] for page in pages for row in page["conversations"]]
    assert [len(page["conversations"]) for page in pages] == [20, 10]
    assert len(set(ids)) == 30


def test_database_of_agentkit_is_imported_with_its_ids(program: Program, tmp_path: Path) -> None:
    program.expect("import", str(database(tmp_path / "conversations.db")))

    hits = program.run("search", "cumin", "--json").json["results"]

    assert [hit["uri"].partition("/k1/")[0] for hit in hits] == ["chats:/"]


async def test_saved_chat_is_found_by_full_text_and_can_be_tagged(api: RestClient, ada: LibraryUser) -> None:
    conversation_id = (await chat(api, "How does a galleon sail?"))["conversation_id"]
    await ada.call("items_tag", uri=f"chats://{conversation_id}", add=["ships"])

    (hit, *_) = await ada.search("knowledge_search", "galleon tag:ships")

    assert hit["uri"].startswith(f"chats://{conversation_id}")


async def test_search_returns_fifty_messages_by_default(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", *(f"galleon {number}" for number in range(52)))

    found = (await api.get("/conversations/search/messages?query=galleon")).json()

    assert (len(found["messages"]), found["total"], found["has_more"]) == (50, 50, True)
