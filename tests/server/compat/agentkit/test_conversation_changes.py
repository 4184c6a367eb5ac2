"""Additions to AgentKit's API for people who look through their conversations: pin, archive, download and follow."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from auth.context import READ
from sources.drafts import ConversationDraft, MessageDraft
from tests.cases import each_case
from tests.live import HTTP_OPTIONS, live, make_settings
from tests.server.compat.agentkit.conversations_api import HELLO, conversation_ids, create_conversation
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import JSON, RestClient, rest_client_of
from tests.sources.source_fixture import LibraryUser


async def patch(api: RestClient, conversation: str, who: str = "ada", **changes: Any) -> HttpResponse:
    return await api.request("PATCH", f"/conversations/{conversation}", who, JSON, msgspec.json.encode(changes))


# Pin and archive


async def test_conversation_is_renamed_moved_pinned_and_archived(api: RestClient) -> None:
    chat = await create_conversation(api, *HELLO, title="Greetings")
    other = await create_conversation(api, *HELLO, title="Other")
    before = (await api.get(f"/conversations/{chat}")).json()["updated_at"]

    pinned = (await patch(api, chat, pinned=True)).json()
    archived = (await patch(api, other, archived=True)).json()
    moved = (await patch(api, chat, title="Hello", namespace="work")).json()

    assert (pinned["pinned"], pinned["archived"], pinned["updated_at"]) == (True, False, before)
    assert (archived["pinned"], archived["archived"]) == (False, True)
    assert (moved["title"], moved["namespace"], moved["pinned"]) == ("Hello", "work", True)
    assert await conversation_ids(api, "pinned=true") == [chat]
    assert await conversation_ids(api, "archived=true") == [other]
    assert await conversation_ids(api, "archived=false&pinned=false") == []
    assert sorted(await conversation_ids(api)) == sorted([chat, other])
    assert (await patch(api, other, archived=False)).json()["archived"] is False


async def test_archived_conversation_is_still_found(api: RestClient, ada: LibraryUser) -> None:
    chat = await create_conversation(api, {"role": "user", "content": "a galleon"})
    await patch(api, chat, archived=True)

    assert len(await ada.search("knowledge_search", "galleon")) == 1
    assert (await api.get(f"/conversations/{chat}")).json()["messages"][0]["content"] == "a galleon"


async def test_update_needs_a_change_the_right_to_write_and_an_own_conversation(api: RestClient) -> None:
    chat = await create_conversation(api, *HELLO)

    assert (await patch(api, chat)).status == 400
    assert (await patch(api, chat, pinned="yes")).status == 422
    assert (await patch(api, chat, colour="red")).status == 422
    assert (await patch(api, chat, "ben", pinned=True)).status == 404
    bearer = await api.server.bearer("ada", (READ,))
    refused = await api.request("PATCH", f"/conversations/{chat}", None, {**JSON, **bearer}, b'{"pinned": true}')
    assert refused.status == 403
    assert await conversation_ids(api, "pinned=true") == []


async def test_pins_survive_an_archive_of_all_conversations(api: RestClient) -> None:
    chat = await create_conversation(api, *HELLO)
    await patch(api, chat, pinned=True, archived=True)
    archive = (await api.get("/conversations/export")).body

    imported = await api.request("POST", "/conversations/import", "ben", {"Content-Type": "application/zip"}, archive)

    assert imported.status == 200, imported.body
    assert await conversation_ids(api, "pinned=true&archived=true", "ben") == [chat]


async def test_reimport_keeps_a_pin(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        chat = await library.chats.create(ConversationDraft(title="One", metadata={"a": 1}, is_pinned=True))
        updated = await library.chats.update(chat.id, ConversationDraft(title="Two", metadata={"a": 2}))
    assert updated.is_pinned


# Reading around a message


async def test_part_around_a_message_is_read(api: RestClient) -> None:
    messages = [{"role": "user", "content": f"message {number}"} for number in range(20)]
    chat = await create_conversation(api, *messages)
    other = await create_conversation(api, *HELLO)
    every = (await api.get(f"/conversations/{chat}")).json()["messages"]

    part = (await api.get(f"/conversations/{chat}?messages_limit=5&message_id={every[10]['id']}")).json()

    assert [message["content"] for message in part["messages"]] == [f"message {number}" for number in range(8, 13)]
    assert (part["messages_offset"], part["next_messages_offset"]) == (8, 13)
    assert [message["seq"] for message in every] == sorted(message["seq"] for message in every)
    assert (await api.get(f"/conversations/{other}?message_id={every[10]['id']}")).status == 404
    assert (await api.get(f"/conversations/{chat}?message_id={every[10]['id']}", "ben")).status == 404


# Downloads


@each_case(
    ("name", "media_type", "beginning"),
    [
        ("json", "application/json", '{"id":"'),
        ("txt", "text/plain; charset=utf-8", "Conversation: Grüße\n"),
        ("md", "text/markdown; charset=utf-8", "# Grüße\n"),
    ],
)
async def test_conversation_is_downloaded_as_a_file(
    api: RestClient, name: str, media_type: str, beginning: str
) -> None:
    chat = await create_conversation(api, *HELLO, title="Grüße")

    response = await api.get(f"/conversations/{chat}/download?format={name}")

    assert (response.status, response.header("content-type")) == (200, media_type)
    assert response.header("content-disposition") == f'attachment; filename="conversation-{chat}.{name}"'
    text = response.body.decode()
    assert text.startswith(beginning)
    assert "Hi there!" in text
    assert (await api.get(f"/conversations/{chat}/download?format={name}", "ben")).status == 404


async def test_unknown_download_format_is_refused(api: RestClient) -> None:
    chat = await create_conversation(api, *HELLO)

    assert (await api.get(f"/conversations/{chat}/download?format=pdf")).status == 422


# Changes


async def read_events(response: httpx2.Response) -> AsyncIterator[tuple[str, str]]:
    """Yields the name and id of each event."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        fields[name] = value
        if not line and "event" in fields:
            yield fields["event"], fields["id"]
            fields = {}


async def test_changes_are_streamed_to_their_owner_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = make_settings(
        tmp_path_factory.mktemp("events"), conversation_events_interval_ms=50, conversation_events_max_s=30
    )
    async with (
        live(settings) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS, base_url=server.url) as client,
    ):
        api = rest_client_of(server)
        headers = await server.bearer("ada")
        async with client.stream("GET", "/api/v1/conversations/events", headers=headers) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            events = read_events(response)
            first = await anext(events)
            await create_conversation(api, *HELLO, who="ben")
            chat = await create_conversation(api, *HELLO)
            created = await asyncio.wait_for(anext(events), 10)
            ada = await api.library_user("ada")
            async with ada.libraries.library(ada.context) as library:
                await library.chats.append(chat, [MessageDraft(content="more")])
            appended = await asyncio.wait_for(anext(events), 10)
        again = {**headers, "Last-Event-ID": created[1]}
        async with client.stream("GET", "/api/v1/conversations/events", headers=again) as response:
            missed = await asyncio.wait_for(anext(read_events(response)), 10)

    assert [first[0], created[0], appended[0]] == ["open", "changed", "changed"]
    assert missed == ("changed", appended[1])


async def test_stream_of_changes_ends_after_its_time(api: RestClient) -> None:
    response = await api.get("/api/v1/conversations/events")

    assert response.status == 200
    assert response.body.count(b"event: ") == 1
    assert (await api.get("/api/v1/conversations/events", None)).status == 401
